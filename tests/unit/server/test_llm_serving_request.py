import json
from typing import Any

import pytest

from chairlift.server.llm_serving.coerce import InvalidBody
from chairlift.server.llm_serving.request import Parameters, decode, ignored, parse, sampling_params


def params(**parameters: Any) -> Any:
    request = parse({"inputs": "a", "parameters": parameters})
    return sampling_params(request.parameters, vocab_size=1000)


def errors(body: object) -> list[dict[str, Any]]:
    with pytest.raises(InvalidBody) as caught:
        parse(decode(body if isinstance(body, bytes) else json.dumps(body).encode()))
    return caught.value.detail


def test_absent_parameters_have_the_old_defaults() -> None:
    for body in ({"inputs": "a"}, {"inputs": "a", "parameters": None}, {"inputs": "a", "parameters": {}}):
        request = parse(body)
        assert request.parameters == Parameters()
        assert request.stream is False
    sampled = params()
    assert (sampled.temperature, sampled.top_k, sampled.top_p, sampled.max_tokens) == (1.0, 3, 1.0, 300)
    assert sampled.seed is None


def test_null_numbers_are_as_absent() -> None:
    sampled = params(max_new_tokens=None, top_k=None, top_p=None, temperature=None, repetition_penalty=None)
    assert sampled == params()


@pytest.mark.parametrize(("top_k", "expected"), [(0, 1), (-5, 1), (1000, 1), (999, 100), (101, 100), ("7", 7)])
def test_top_k_is_clamped(top_k: Any, expected: int) -> None:
    assert params(top_k=top_k).top_k == expected


@pytest.mark.parametrize(("top_p", "expected"), [(0, 0.01), (-1, 0.01), (0.001, 0.001), (1.5, 1.0), ("0.8", 0.8)])
def test_top_p_is_clamped(top_p: Any, expected: float) -> None:
    assert params(top_p=top_p).top_p == expected


@pytest.mark.parametrize("temperature", [0, -1, 1e-5, 65537])
def test_a_temperature_out_of_range_means_greedy(temperature: float) -> None:
    assert params(temperature=temperature).is_greedy


def test_do_sample_false_means_greedy() -> None:
    assert params(do_sample="False", temperature=0.7).is_greedy
    assert params(do_sample="True", temperature=0.7).temperature == 0.7


def test_seed_stop_and_repetition_penalty_count() -> None:
    sampled = params(seed="7", stop=["x", "", "\ud800"], repetition_penalty="1.3")
    assert (sampled.seed, sampled.stop, sampled.repetition_penalty) == (7, ("x",), 1.3)


def test_a_repetition_penalty_out_of_range_is_replaced() -> None:
    assert params(repetition_penalty=0).repetition_penalty == 1.0


def test_inputs_that_are_not_text_are_refused_by_name() -> None:
    assert errors({"inputs": "a \ud800 b"}) == [
        {"loc": ["body", "inputs"], "msg": "half of a surrogate pair is not text", "type": "value_error.unicode"}
    ]
    assert parse(decode(b'{"inputs": "\\ud83d\\ude00"}')).inputs == "\U0001f600"


def test_too_many_or_too_long_stop_strings_are_refused_by_name() -> None:
    where = ["body", "parameters", "stop"]
    (many,) = errors({"inputs": "a", "parameters": {"stop": ["x"] * 65}})
    assert (many["loc"], many["ctx"]) == (where, {"limit_value": 64})
    (long,) = errors({"inputs": "a", "parameters": {"stop": ["x", "x" * 1025]}})
    assert (long["loc"], long["ctx"]) == ([*where, 1], {"limit_value": 1024})
    assert len(params(stop=["x" * 1024] * 64).stop) == 64


def test_every_error_is_reported_in_pydantic_s_shape() -> None:
    body = {"inputs": None, "parameters": {"top_k": "x", "stop": ["a", []], "watermark": "?"}, "stream": 2}
    assert errors(body) == [
        {"loc": ["body", "inputs"], "msg": "none is not an allowed value", "type": "type_error.none.not_allowed"},
        {"loc": ["body", "parameters", "top_k"], "msg": "value is not a valid integer", "type": "type_error.integer"},
        {"loc": ["body", "parameters", "stop", 1], "msg": "str type expected", "type": "type_error.str"},
        {
            "loc": ["body", "parameters", "watermark"],
            "msg": "value could not be parsed to a boolean",
            "type": "type_error.bool",
        },
        {"loc": ["body", "stream"], "msg": "value could not be parsed to a boolean", "type": "type_error.bool"},
    ]


@pytest.mark.parametrize("max_new_tokens", [0, -1, "0", 0.5])
def test_max_new_tokens_below_one_is_refused(max_new_tokens: Any) -> None:
    assert errors({"inputs": "a", "parameters": {"max_new_tokens": max_new_tokens}}) == [
        {
            "loc": ["body", "parameters", "max_new_tokens"],
            "msg": "ensure this value is greater than or equal to 1",
            "type": "value_error.number.not_ge",
            "ctx": {"limit_value": 1},
        }
    ]


@pytest.mark.parametrize(
    ("body", "loc", "kind"),
    [
        (b"", ["body"], "value_error.missing"),
        (b"null", ["body"], "value_error.missing"),
        (b"3", ["body"], "type_error.dict"),
        (b"{}", ["body", "inputs"], "value_error.missing"),
        (b'{"inputs": "a", "parameters": 3}', ["body", "parameters"], "type_error.dict"),
        (b'{"inputs": ', ["body", 11], "json_invalid"),
        (b'{"inputs": "\xff"}', ["body", 0], "json_invalid"),
        ('{"inputs": "a"}'.encode("utf-16"), ["body", 0], "json_invalid"),
        (b"[" * 100_000, ["body", 0], "json_invalid"),
        (b'{"inputs": "a", "parameters": {"top_p": NaN}}', ["body", "parameters", "top_p"], "type_error.float"),
    ],
)
def test_a_bad_body_says_where_and_why(body: bytes, loc: list[Any], kind: str) -> None:
    [error] = errors(body)
    assert (error["loc"], error["type"]) == (loc, kind)


def test_unknown_keys_are_dropped() -> None:
    assert params(topk_k=5) == params()


def test_what_has_no_effect_is_named_unless_it_asks_for_nothing() -> None:
    parameters = {"top_k": 5, "watermark": True, "details": False, "typical_p": 0, "best_of": 2}
    body = {"inputs": "a", "stream": True, "parameters": parameters, "model": "small"}
    assert ignored(body) == ["model", "parameters.watermark", "parameters.best_of"]
    assert ignored({"inputs": "a", "parameters": None}) == []
