from typing import Any

import numpy as np
import pytest

from chairlift.core.attributes import ATTRIBUTES, Attributes
from chairlift.core.errors import InvalidRequest
from chairlift.core.params import MAX_BIASES, MAX_STOP_IDS, SamplingParams


def test_a_plain_string_is_one_stop_string() -> None:
    assert SamplingParams(stop="answer").stop == ("answer",)  # type: ignore[arg-type]


def test_lists_and_numbers_of_other_libraries_are_read() -> None:
    params = SamplingParams(
        stop=["a", "b"], stop_token_ids=[1, np.int64(2)], max_tokens=np.int32(3), temperature=np.float32(0.5),
        logit_bias={np.int64(4): np.float64(1.0)},
    )  # type: ignore[arg-type]  # fmt: skip
    plain = SamplingParams(stop=("a", "b"), stop_token_ids=(1, 2), max_tokens=3, temperature=0.5, logit_bias={4: 1.0})
    assert params == plain
    assert type(params.max_tokens) is type(params.stop_token_ids[1]) is type(next(iter(params.logit_bias))) is int


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("max_tokens", "3", "must be a whole number, got '3' (str)"),
        ("max_tokens", 2.5, "must be a whole number, got '2.5' (float)"),
        ("n", True, "must be a whole number, got 'True' (bool)"),
        ("n", None, "must be a whole number"),
        ("seed", 1.5, "must be a whole number"),
        ("temperature", "1", "must be a number"),
        ("top_p", None, "must be a number"),
        ("ignore_eos", "no", "must be True or False"),
        ("stop", 5, "must be a string or a list of strings"),
        ("stop", [1], "must be a string or a list of strings"),
        ("stop", b"end", "must be a string or a list of strings"),
        ("stop_token_ids", 5, "must be a list of token ids"),
        ("stop_token_ids", ["a"], "must be a whole number, got 'a' (str)"),
        ("logit_bias", [1], "must be a dictionary of token ids and numbers"),
        ("logit_bias", {"a": 1.0}, "must be a whole number"),
    ],
)
def test_another_type_is_refused_by_the_field_s_name(field: str, value: Any, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        SamplingParams(**{field: value})
    assert refusal.value.field == field
    assert complaint in refusal.value.message


def test_the_bias_of_a_token_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"logit_bias\[7\]: must be a number"):
        SamplingParams(logit_bias={7: "much"})  # type: ignore[dict-item]


def test_as_many_biases_and_stop_tokens_as_allowed_are_taken_and_more_are_refused_unread() -> None:
    full = SamplingParams(logit_bias=dict.fromkeys(range(MAX_BIASES), 1.0), stop_token_ids=range(MAX_STOP_IDS))  # type: ignore[arg-type]
    assert (len(full.logit_bias), len(full.stop_token_ids)) == (MAX_BIASES, MAX_STOP_IDS)
    with pytest.raises(InvalidRequest, match=f"stop_token_ids: must hold at most {MAX_STOP_IDS} token ids"):
        SamplingParams(stop_token_ids=("unread",) * (MAX_STOP_IDS + 1))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=f"logit_bias: must hold at most {MAX_BIASES} token ids"):
        SamplingParams(logit_bias=dict.fromkeys(range(MAX_BIASES + 1), "unread"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("max_tokens", 0, "must be at least 1, got 0"),
        ("top_p", 1.5, "must be between 0.0 and 1.0, got 1.5"),
        ("min_p", float("nan"), "must be between 0.0 and 1.0, got nan"),
        ("stop_token_ids", (3, -1), "must be at least 0, got -1"),
        ("logit_bias", {-1: 0.5}, "must be at least 0, got -1"),
        ("best_of", 1, "must be at least 2, got 1"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_the_bounds(field: str, value: Any, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        SamplingParams(**{"n": 2 if field == "best_of" else 1, field: value})
    assert (refusal.value.field, refusal.value.message) == (field, complaint)


def test_an_attribute_that_a_client_gives_has_bounds_and_one_that_the_server_sets_has_none() -> None:
    with pytest.raises(InvalidRequest, match="deadline_s: must be above 0, got 0"):
        ATTRIBUTES["deadline_s"].read(0)
    with pytest.raises(InvalidRequest, match="user: must have at most 1024 characters, got 1025"):
        ATTRIBUTES["user"].read("x" * 1025)
    assert Attributes(deadline_s=-1.0).given == {"deadline_s": -1.0}  # one that is overdue
    assert not ATTRIBUTES["share"].is_public


def test_a_copy_shares_nothing_that_may_change() -> None:
    params = SamplingParams(logit_bias={1: 2.0}, top_k=3)
    copy = params.clone()
    copy.logit_bias[1] = 3.0
    assert (params.logit_bias, copy.top_k) == ({1: 2.0}, 3)
    assert SamplingParams.from_optional(top_k=3, logit_bias={1: 2.0}, seed=None) == params


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("guided_decoding", "guided_decoding: use structured_outputs="),
        ("max_token", r"max_token: is no sampling parameter \(did you mean max_tokens"),
    ],
)
def test_a_name_that_is_none_is_answered_with_what_to_use(name: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        SamplingParams(**{name: 1})


@pytest.mark.parametrize("name", ["allowed_token_ids", "bad_words"])
def test_a_list_that_would_mean_nothing_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}: .*must not be empty"):
        SamplingParams(**{name: [""] if name == "bad_words" else []})
