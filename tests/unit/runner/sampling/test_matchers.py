"""Matchers: rows of bits for answers that are held to a shape, made again at any time."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.core.structured import Structured
from chairlift.runner.sampling import matchers as module
from chairlift.runner.sampling.matchers import _GROUP, Matchers
from chairlift.text.structured.vocabulary import grammar_vocabulary
from fakes.small_tokenizer import small_tokenizer

TOKENIZER = small_tokenizer()
SIZE = TOKENIZER.vocab_size + 37  # as where a model's logits are padded
POINT = Structured.json_schema(
    {"type": "object", "properties": {"x": {"type": "integer"}, "to": {"type": "string"}}, "required": ["x", "to"]}
)

SMALL = Structured.json_schema(
    {
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}, "to": {"type": "string", "maxLength": 4}},
        "required": ["x", "to"],
        "additionalProperties": False,
    }
)


@lru_cache(maxsize=1)
def vocabulary() -> LLTokenizer:
    assert TOKENIZER.eos_id is not None
    return grammar_vocabulary(TOKENIZER, SIZE, [TOKENIZER.eos_id])


def matchers(max_kept: int = 8) -> Matchers:
    return Matchers(vocabulary, SIZE, max_kept)


def request(structured: Structured, id: int = 1) -> Request:
    params = SamplingParams(structured_outputs=structured)
    return Request(id=RequestId(id), prompt=(5, 6), params=params, max_output=90, seed=0)


def encoded(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special=False)


def allowed(words: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


def one(structured: Structured, text: str) -> set[int]:
    masks = matchers().masks(1, [(request(structured), encoded(text))])
    assert not masks.failed
    return allowed(masks.words[0])


def test_only_what_continues_the_shape_may_come() -> None:
    yes_or_no = Structured.choice(["yes", "no"])
    assert {TOKENIZER.spelling[token] for token in one(yes_or_no, "")} <= {b"y", b"ye", b"yes", b"n", b"no"}
    assert {TOKENIZER.spelling[token] for token in one(yes_or_no, "n")} == {b"o"}


def _pairs(num_rules: int) -> Structured:
    """Rules of all their pairs: a text fits them in many ways."""
    names = [f"r{number}" for number in range(num_rules)]
    pairs = " | ".join(f"{first} {second}" for first in names for second in names)
    return Structured.grammar("start: r0\n" + "".join(f"{name}: {pairs} | /[a-z ]/\n" for name in names))


@pytest.mark.parametrize(
    ("times", "failed", "why"),
    [
        ([0.02] * 4, [], ""),
        ([0.3, 0.01, 0.01], [0, 4], "a mask of its rules takes 300 ms"),  # the third is not made
        ([0.15, 0.2, 0.19, 0.01], [1], "masks of its rules take 200 ms of a step, the budget is 500 ms"),
    ],
)
def test_rules_beyond_the_budget_fail_with_those_of_the_same_shape(
    monkeypatch: pytest.MonkeyPatch, times: list[float], failed: list[int], why: str
) -> None:
    left = iter(times)
    monkeypatch.setattr(module, "_timed", lambda call: (call(), next(left))[1])
    shapes = [_pairs(2), Structured.grammar('start: "a"+'), Structured.grammar('start: "b"+'), POINT, _pairs(2)]
    masks = matchers().masks(1, [(request(shape, id), []) for id, shape in enumerate(shapes)])
    assert sorted(masks.failed) == failed
    assert all(why in each for each in masks.failed.values())
    assert not masks.failed or allowed(masks.words[failed[0]]) >= set(range(SIZE))


def masked(text: str, **given: Any) -> set[int]:
    params = SamplingParams(max_tokens=90, **given).banning(encoded)
    asked = Request(id=RequestId(1), prompt=(5, 6), params=params, max_output=90, seed=0, stop_ids=frozenset({7}))
    masks = matchers().masks(1, [(asked, encoded(text))])
    return {-1} if masks.failed else allowed(masks.words[0])


def test_tokens_that_are_allowed_are_all_that_may_come() -> None:
    assert masked("", allowed_token_ids=[3, 40, SIZE - 1]) == {3, 40, SIZE - 1}
    yes = Structured.choice(["yes", "no"])
    both = masked("", allowed_token_ids=encoded("y") + encoded("q"), structured_outputs=yes)
    assert both == set(encoded("y"))
    assert masked("", allowed_token_ids=encoded("q"), structured_outputs=yes) == {-1}


def test_a_bad_word_is_never_completed() -> None:
    word = encoded("zqx")
    assert len(word) > 1
    assert word[-1] in masked("", bad_words="zqx")
    assert word[-1] in masked("zq zq", bad_words="zqxy")
    assert word[-1] not in masked("a zq", bad_words="zqx")
    [single] = encoded("e")
    assert single not in masked("", bad_words=["e", "zqx"])


def test_a_list_with_end_tokens_alone_fails_where_the_answer_may_not_end_yet() -> None:
    assert masked("", allowed_token_ids=[7], min_tokens=1) == {-1}
    assert masked("e", allowed_token_ids=[7], min_tokens=1) == {7}


def test_a_complete_answer_can_only_end() -> None:
    assert one(Structured.choice(["yes", "no"]), "yes") == {TOKENIZER.eos_id}


def test_ids_beyond_the_tokenizer_never_come() -> None:
    assert max(one(Structured.grammar("start: /(.|\\n)*/"), "")) < TOKENIZER.vocab_size


def test_answers_may_be_followed_in_any_order_and_made_again_from_their_tokens() -> None:
    texts = ['{"x": 1', '{"x": 1, "to": "a\\', "{", '{"x": -1, "to": "']
    rows = [(request(POINT, id), encoded(text)) for id, text in enumerate(texts)]
    whole = matchers().masks(1, rows).words
    grown, dropped = matchers(), matchers(max_kept=1)
    for step in range(1, max(len(output) for _, output in rows) + 1):
        part = [(asked, output[:step]) for asked, output in rows]
        assert (grown.masks(step, part).words == dropped.masks(step, part[::-1]).words[::-1]).all()
    assert (grown.masks(99, rows).words == whole).all()


def test_each_row_of_a_request_with_drafts_comes_after_the_drafts_before_it() -> None:
    output = encoded('{"x": 12, "to": "b"}')
    asked = request(POINT)
    rows = [(asked, output[:length]) for length in range(2, len(output))]
    apart = [matchers().masks(1, [row]).words[0] for row in rows]
    together = matchers()
    assert (together.masks(1, rows).words == np.stack(apart)).all()
    # What was drafted is forgotten: the answer goes on after the first row.
    assert (together.masks(2, rows[1:2]).words[0] == apart[1]).all()


def test_a_step_of_another_scheduler_begins_anew() -> None:
    both = matchers()
    both.masks(7, [(request(Structured.choice(["yes"])), encoded("ye"))])
    masks = both.masks(1, [(request(Structured.choice(["no"])), encoded("n"))])
    assert {TOKENIZER.spelling[token] for token in allowed(masks.words[0])} == {b"o"}


@pytest.mark.parametrize(
    ("structured", "output"),
    [(Structured.grammar("start: nothing"), []), (POINT, encoded("hello"))],
    ids=["the shape is none", "the tokens do not fit"],
)
def test_what_cannot_be_followed_fails_by_itself(structured: Structured, output: Sequence[int]) -> None:
    masks = matchers().masks(1, [(request(structured, 1), output), (request(POINT, 2), [])])
    assert list(masks.failed) == [0] and "shape" in masks.failed[0]
    assert allowed(masks.words[1]) == one(POINT, "")


def test_a_model_without_a_tokenizer_fails_structured_requests_alone() -> None:
    def missing() -> LLTokenizer:
        raise OSError("no tokenizer.json")

    masks = Matchers(missing, SIZE, 8).masks(1, [(request(POINT), [])])
    assert masks.failed == {0: "structured_outputs: the model's vocabulary cannot be read: no tokenizer.json"}


def test_grammars_are_made_while_prompts_are_computed() -> None:
    asked, made = request(POINT), matchers()
    made.expect(StepPlan(1, (Chunk(asked, 0, 2, (5, 6), 2, ((),), 0, ()),), (), 2, 0))
    assert made._grammars[POINT].result(timeout=60) is not None


def test_a_walk_along_the_masks_ends_in_valid_json() -> None:
    rng, followed, step = np.random.default_rng(3), matchers(), 0
    for id in range(5):
        output: list[int] = []
        while not output or output[-1] != TOKENIZER.eos_id:
            step += 1
            words = followed.masks(step, [(request(SMALL, id), output)]).words
            output.append(int(rng.choice(sorted(allowed(words[0])))))
        found = json.loads(TOKENIZER.decode(output))
        assert 0 <= found["x"] <= 99 and len(found["to"]) <= 4


def test_a_step_of_many_masks_tells_of_them_as_it_goes() -> None:
    made, computed, told = matchers(max_kept=2 * _GROUP + 1), [0], []
    fill = made._fill

    def counted(words: np.ndarray, group: list[tuple[LLMatcher, int]]) -> None:
        fill(words, group)
        computed[0] += len(group)

    made._fill = counted  # type: ignore[method-assign]
    rows = [(request(POINT, id), encoded('{"x": 1')[: id % 3]) for id in range(2 * _GROUP + 1)]
    words = made.masks(1, rows, lambda: told.append(computed[0])).words
    assert told == [0] * len(rows) + [0, _GROUP, 2 * _GROUP]
    assert (words == np.stack([matchers().masks(1, [row]).words[0] for row in rows])).all()
