"""A chat turn: its prompt, what its answer is held to, and whether and how it is read."""

from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.params import SamplingParams
from chairlift.core.structured import Structured
from chairlift.text.responses.reading.events import Content, Reasoning
from chairlift.text.responses.templates.model_format import ModelFormat, format_of
from chairlift.text.responses.turn import Asked, ChatTurn, turn_of
from chairlift.text.structured.checker import StructuredChecker
from chairlift.text.tokenizer import Tokenizer
from fakes.small_tokenizer import small_tokenizer, tokenizer_of
from fakes.tool_worlds import HI, MARKS, NOW, TEMPLATE

SHAPE = Structured.json_schema({"type": "integer"})
PLAIN, SHAPED = SamplingParams(), SamplingParams(structured_outputs=SHAPE)


def turn(tokenizer: Tokenizer, name: str | None = None, **asked: Any) -> ChatTurn:
    return turn_of(tokenizer, format_of(tokenizer, name), Asked(messages=HI, **{"choice": "none", **asked}))


def held(made: ChatTurn, tokenizer: Tokenizer, params: SamplingParams) -> Structured | None:
    checker = StructuredChecker(tokenizer, tokenizer.vocab_size, [tokenizer.eos_id or 0])
    return made.held(params, checker).structured_outputs


def found(tokenizer: Tokenizer, name: str | None = None) -> ModelFormat:
    made = format_of(tokenizer, name)
    assert made is not None
    return made


def test_a_model_reasons_where_its_template_or_its_vocabulary_has_the_marks() -> None:
    assert not found(small_tokenizer()).can_reason
    assert found(tokenizer_of(TEMPLATE)).can_reason
    assert found(tokenizer_of("", ["<think>", "</think>"])).can_reason
    assert not found(tokenizer_of("", ["<think>"])).can_reason
    assert found(tokenizer_of(""), "reasoning").can_reason
    assert found(tokenizer_of(""), "gpt-oss").can_reason
    assert not found(tokenizer_of(TEMPLATE), "llama3-json").can_reason


def test_marks_that_are_special_tokens_are_known() -> None:
    assert tuple(found(tokenizer_of("", MARKS["mistral"]), "mistral").special_marks) == MARKS["mistral"]
    assert not found(tokenizer_of("", MARKS["mistral"]), "hermes").special_marks
    assert format_of(tokenizer_of(None)) is None


def test_a_plain_turn_is_not_read_and_held_to_no_more_than_its_shape() -> None:
    made = turn(small_tokenizer())
    assert made.read_as is None
    assert not made.is_held(SHAPED)
    assert held(made, small_tokenizer(), SHAPED) == SHAPE


@pytest.mark.parametrize(
    ("asked", "params", "is_held"),
    [
        ({}, PLAIN, False),
        ({}, SHAPED, True),
        ({"thinks": False}, SHAPED, False),
        ({"thinking_budget": 5}, PLAIN, True),
        ({"tools": [NOW], "choice": "auto"}, PLAIN, True),
        ({"tools": [NOW], "choice": "none"}, PLAIN, False),
        ({"template_kwargs": {"is_open": True}}, PLAIN, False),
        ({"template_kwargs": {"is_open": True}, "thinks": False}, PLAIN, True),
    ],
)
def test_a_turn_that_may_reason_is_held_around_its_reasoning(asked: Any, params: SamplingParams, is_held: bool) -> None:
    tokenizer = tokenizer_of(TEMPLATE)
    made = turn(tokenizer, **asked)
    assert made.is_held(params) == is_held
    assert (held(made, tokenizer, params) != params.structured_outputs) == is_held


def test_each_sample_has_a_reader_of_its_own_that_begins_where_the_prompt_ends() -> None:
    made = turn(tokenizer_of(TEMPLATE), template_kwargs={"is_open": True})
    assert made.read_as is not None and made.read_as.in_reasoning
    first, second = made.read_as.reader(), made.read_as.reader()
    assert first.push("Hm.</think>Yes.") + first.finish() == [Reasoning("Hm."), Content("Yes.")]
    assert second.push("So") + second.finish() == [Reasoning("So")]


@pytest.mark.parametrize(
    ("asked", "thinks"),
    [
        ({}, None),
        ({"thinks": True}, True),
        ({"thinks": True, "template_kwargs": {"enable_thinking": False}}, False),
        ({"thinks": False, "template_kwargs": {"enable_thinking": True}}, True),
        ({"thinks": False, "template_kwargs": {"enable_thinking": None}}, False),
        ({"thinking_budget": 0}, False),
        ({"thinking_budget": 5}, None),
        ({"thinking_budget": 0, "thinks": True}, True),
        ({"thinking_budget": 0, "template_kwargs": {"enable_thinking": True}}, True),
    ],
)
def test_whether_a_turn_is_to_think(asked: Any, thinks: bool | None) -> None:
    assert Asked(messages=HI, **asked).thinks is thinks


@pytest.mark.parametrize(
    ("asked", "thinks"),
    [({}, False), ({"thinks": True}, True), ({"template_kwargs": {"enable_thinking": True}}, True)],
)
def test_a_server_s_values_for_the_template_count_where_the_turn_says_nothing(asked: Any, thinks: bool) -> None:
    found = Asked(messages=HI, **asked).with_defaults({"enable_thinking": False, "a": 1})
    assert found.thinks is thinks
    assert found.template_kwargs["a"] == 1


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("thinking_budget", {"thinking_budget": -1}),
        ("thinking_budget", {"thinking_budget": True}),
        ("thinking_budget", {"thinking_budget": 2.5}),
        ("enable_thinking", {"thinks": "no"}),
        ("chat_template_kwargs.enable_thinking", {"template_kwargs": {"enable_thinking": "no"}}),
    ],
)
def test_what_is_no_way_of_thinking_is_refused_by_name(field: str, asked: Any) -> None:
    with pytest.raises(InvalidRequest) as error:
        Asked(messages=HI, **asked)
    assert error.value.field == field
