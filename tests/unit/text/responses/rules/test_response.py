"""The grammar of an answer: what it allows, and that the reader reads it."""

import json
import random
from itertools import islice
from typing import Any

import jsonschema_rs
import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.core.structured import Structured
from chairlift.text.responses.reading.events import CallArguments, CallBegins, Content, Reasoning
from chairlift.text.responses.reading.reader import ResponseReader
from chairlift.text.responses.rules.response import response_grammar
from chairlift.text.responses.rules.schemas import arguments_of
from chairlift.text.responses.templates.families import BY_NAME
from chairlift.text.responses.tools.tool import Tool
from unit.text.responses.grammars import SPECIAL_IDS, accepts, begins, walk
from unit.text.responses.reading.test_reader import joined
from unit.text.responses.streams import (
    FAMILIES,
    THINKING,
    TOOLS,
    deepseek,
    gpt_oss,
    hermes,
    llama3,
    mistral,
    recorded_of,
)

CALLING = [name for name, template in BY_NAME.items() if template.can_call]
# Answers that no grammar would give: broken, or written in another way than the one that it holds to.
_FREE = (
    "a bracket",
    "a call in reasoning",
    "a number in quotes",
    "an unknown",
    "arguments first",
    "arguments in",
    "cut",
)
_FREE += ("looks like", "never closed", "no ", "null", "odd strings", "other JSON", "reasoning cut", "reasoning later")
_FREE += ("several in Python", "text and a tag", "with a tag")
_CLOSERS = ('"', "}", "]", ")", "</parameter>", "</arg_value>", ", ", "1")
_REST = Tool("rest", {"type": "object", "properties": {"s": {"type": "string", "minLength": 2}, "n": {"type": "null"}}})
PICKY = Tool(
    "pick",
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0, "maximum": 99},
            "how": {"enum": ["slow", "fast"]},
            "list": {"type": "array", "items": {"$ref": "#/$defs/one"}, "maxItems": 2},
            "is": {"type": "boolean"},
        },
        "required": ["id", "how"],
        "additionalProperties": False,
        "$defs": {"one": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
    },
    strict=True,
)


def special_of(family: str) -> dict[str, int]:
    """Ids for marks of the family that look like special tokens."""
    inside = ("=", "<arg_", "</arg_", "</parameter>", "</function>", "function<")
    marks = sorted(mark for mark in BY_NAME[family].marks if mark[0] + mark[-1] in ("[]", "<>"))
    return dict(zip([mark for mark in marks if not any(part in mark for part in inside)], SPECIAL_IDS, strict=False))


def grammar(family: str, choice: str = "auto", **given: Any) -> Structured:
    tools = [tool for tool in given.pop("tools", TOOLS) if choice in ("auto", "required", tool.name)]
    made = response_grammar(BY_NAME[family], tools, choice != "auto", **({"thinks": True} | given))
    assert made is not None
    return made


@pytest.mark.parametrize("is_special", [False, True], ids=["marks as text", "marks as tokens"])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name in CALLING])
def test_recorded_answers_are_allowed(family: str, is_special: bool) -> None:
    special = special_of(family) if is_special else {}
    for recorded in (each for each in recorded_of(family) if each.text and not each.shows.startswith(_FREE)):
        made = grammar(family, special=special, in_reasoning=recorded.in_reasoning)
        text = recorded.text
        if family == "gpt-oss":
            text = text.removesuffix("<|call|>").removesuffix("<|return|>")  # which end the answer
        assert accepts(made, text, special), recorded.shows


def test_inside_a_call_the_schema_holds() -> None:
    made = grammar("hermes", tools=(PICKY,))
    assert accepts(made, "Well.\n" + hermes(("pick", '{"id": 3, "how": "slow"}')))
    assert begins(made, "Well. <tool_cal {}")
    assert not begins(made, '<tool_call>\n{"name": "other"')
    assert not begins(made, hermes(("pick", '{"id": 300')))
    assert not begins(made, hermes(("pick", '{"id": 3, "how": "so')))
    assert not begins(made, "<tool_call>\nhello")


@pytest.mark.parametrize("choice", ["required", "now"])
def test_a_call_must_come_where_it_is_asked_for(choice: str) -> None:
    made = grammar("hermes", choice)
    assert accepts(made, hermes(("now", "{}")))
    assert accepts(made, THINKING + hermes(("now", "{}")))
    assert not begins(made, "Well")
    assert not accepts(made, "")
    assert begins(made, hermes(("weather", '{"city')).split("city")[0]) == (choice == "required")


@pytest.mark.parametrize(
    ("family", "write"),
    [("hermes", hermes), ("deepseek", deepseek), ("mistral", mistral)],
    ids=("hermes", "deepseek", "mistral"),
)
def test_one_call_only_where_several_are_not_wanted(family: str, write: Any) -> None:
    one, two = write(("now", "{}")), write(("now", "{}"), ("now", "{}"))
    for choice in ("auto", "required"):
        assert accepts(grammar(family, choice), two)
        assert not begins(grammar(family, choice, parallel=False), two)
        assert accepts(grammar(family, choice, parallel=False), one)


def test_a_shape_begins_after_the_reasoning() -> None:
    shape = Structured.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    made = grammar("hermes", "none", structured=shape)
    assert accepts(made, THINKING + '{"a": 1}')
    assert accepts(made, '{"a": 1}')
    assert not begins(made, THINKING + "Well")
    inside = grammar("hermes", "none", structured=shape, in_reasoning=True)
    assert accepts(inside, 'Hm. {"a": 2}\n</think>\n\n{"a": 1}')
    assert not accepts(inside, '{"a": 1}')


def test_a_shape_or_calls() -> None:
    made = grammar("hermes", structured=Structured.choice(["yes", "no"]))
    assert accepts(made, "yes")
    assert accepts(made, hermes(("now", "{}"), ("now", "{}")))
    assert not begins(made, "maybe")


@pytest.mark.parametrize("shape", [Structured.regex("[0-9]/[0-9]"), Structured.grammar("start: A\nA: /[0-9]\\/[0-9]/")])
def test_any_kind_of_shape_follows_reasoning(shape: Structured) -> None:
    made = grammar("hermes", "none", structured=shape)
    assert accepts(made, THINKING + "1/2")
    assert not begins(made, THINKING + "1-2")


def test_reasoning_ends_at_its_budget() -> None:
    made = grammar("hermes", "none", thinking_budget=6)
    assert accepts(made, "<think>one two</think>Yes.")
    assert accepts(made, "<think>one two three four five six</think>Yes.")
    assert not begins(made, "<think>one two three four five six seven eight")
    special = special_of("hermes")
    made = grammar("hermes", "none", thinking_budget=4, special=special)
    assert accepts(made, "<think>one two</think>Yes.", special)
    assert not begins(made, "<think>one two three four five six", special)


def test_no_budget_means_no_reasoning() -> None:
    made = grammar("hermes", "required", thinking_budget=0)
    assert not begins(made, "<think>")
    inside = grammar("hermes", "required", thinking_budget=0, in_reasoning=True)
    assert accepts(inside, "</think>\n\n" + hermes(("now", "{}")))
    assert not begins(inside, "Hm")


def test_nothing_to_hold_to_is_no_grammar() -> None:
    assert response_grammar(BY_NAME["hermes"], (), False, thinks=True) is None
    assert response_grammar(BY_NAME["gpt-oss"], (), False) is None
    shape = Structured.regex("a")
    assert response_grammar(BY_NAME["hermes"], (), False, structured=shape) is shape


def test_channels_hold_calls_and_shapes() -> None:
    special = special_of("gpt-oss")
    analysis = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    call = gpt_oss(("pick", '{"id": 1, "how": "fast"}')).removesuffix("<|call|>")
    must = grammar("gpt-oss", "required", tools=(PICKY,), special=special)
    assert accepts(must, analysis + call, special)
    assert not begins(must, analysis + "<|channel|>final", special)
    assert not begins(must, call.replace("fast", "fat"), special)
    shaped = grammar("gpt-oss", "none", structured=Structured.regex("[0-9]+"), special=special)
    assert accepts(shaped, analysis + "<|channel|>final<|message|>12", special)
    assert not begins(shaped, "<|channel|>final<|message|>a", special)
    short = grammar("gpt-oss", "none", thinking_budget=2, special=special)
    assert not begins(short, "<|channel|>analysis<|message|>one two three four", special)


def test_a_tool_that_is_not_strict_gets_any_object() -> None:
    loose = Tool("pick", PICKY.parameters, strict=False)
    assert accepts(grammar("hermes", tools=(loose,)), hermes(("pick", '{"x": [1, "y"]}')))
    odd = Tool("odd", {"type": "object", "properties": {"a": {"not": {"type": "string"}}}})
    assert accepts(grammar("hermes", tools=(odd,)), hermes(("odd", '{"x": 1}')))


def test_what_cannot_be_held_to_is_refused_with_its_place() -> None:
    strict = Tool("odd", {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}, strict=True, index=1)
    with pytest.raises(InvalidRequest, match=r"tools\[1\].function.parameters: at /properties/a.*not"):
        grammar("hermes", tools=(PICKY, strict))
    dated = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}
    with pytest.raises(InvalidRequest, match="tools: f: at /properties/day: a bare string cannot be held to format"):
        grammar("qwen3-coder", tools=(Tool("f", dated, strict=True),))
    grammar("qwen3-coder", tools=(Tool("f", dated),))


_TREE = Tool(
    "plant",
    {
        "type": "object",
        "properties": {
            "root": {"$ref": "#/$defs/node"},
            "a b": {"type": ["string", "null"], "maxLength": 3},
            "ends": {"type": "array", "items": {"enum": ["x", 1]}, "minItems": 1, "maxItems": 2},
        },
        "required": ["root"],
        "additionalProperties": False,
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"size": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
                "required": ["size"],
            }
        },
    },
    strict=True,
)


_GEMMA_TOKENS = dict(
    zip(("<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", '<|"|>'), SPECIAL_IDS, strict=False)
)


def test_marks_may_be_a_special_token_and_text_behind_it() -> None:
    thought, call = "<|channel>thought\nHm.\n<channel|>", "<|tool_call>call:now{}<tool_call|>"
    made = grammar("gemma4", special=_GEMMA_TOKENS)
    for text in ("Well. " + call, thought + call, thought + "Well." + call + call, call + "\n" + call):
        assert accepts(made, text, _GEMMA_TOKENS), text
    assert not begins(made, "<|tool_call>now", _GEMMA_TOKENS)
    must = grammar("gemma4", "required", special=_GEMMA_TOKENS)
    assert accepts(must, thought + call, _GEMMA_TOKENS)
    assert not begins(must, "Well", _GEMMA_TOKENS)
    short = grammar("gemma4", "none", thinking_budget=6, special=_GEMMA_TOKENS)
    assert accepts(short, "<|channel>thought\nHm.<channel|>Yes.", _GEMMA_TOKENS)
    assert not begins(short, "<|channel>thought one two three four five six seven eight nine", _GEMMA_TOKENS)


@pytest.mark.parametrize("special", [{}, _GEMMA_TOKENS], ids=["marks as text", "marks as tokens"])
def test_marked_strings_are_held_to_their_schema_at_every_depth(special: dict[str, int]) -> None:
    made = grammar("gemma4", "required", tools=(_TREE,), special=special)

    def call(inside: str) -> str:
        return f"<|tool_call>call:plant{{{inside}}}<tool_call|>"

    whole = '<|"|>a b<|"|>:<|"|>x}<<|"|>,ends:[<|"|>x<|"|>,1],root:{next:{size:2},size:-1}'
    assert accepts(made, call(whole), special)
    assert accepts(made, call("root:{size:1}") * 2, special)
    assert accepts(made, call('<|"|>a b<|"|>:None,root:{size:1}'), special)
    assert not begins(made, call('<|"|>a b<|"|>:<|"|>long'), special)
    assert not begins(made, call("root:{next:{size:<|"), special)
    assert not begins(made, call("ends:[]"), special)
    assert not begins(made, call("ends:[1,1,1"), special)
    assert not begins(made, call("root:{size:1},"), special)  # keys come in the order of their names


def test_keywords_that_marked_strings_cannot_be_held_to_are_refused_where_the_tool_is_strict() -> None:
    schema = {"type": "object", "properties": {"day": {"type": "array", "items": {"type": "string", "format": "date"}}}}
    with pytest.raises(InvalidRequest, match="tools: f: arguments in the model's format cannot be held to format"):
        grammar("gemma4", tools=(Tool("f", schema, strict=True),))
    grammar("gemma4", tools=(Tool("f", schema),))


def test_each_tool_with_marked_strings_is_held_to_its_own_schema() -> None:
    """References are of the tool around them, and so is strictness."""
    first, second = (
        Tool(name, {"type": "object", "properties": {"x": {"type": kind}, "y": {"$ref": "#/properties/x"}}})
        for name, kind in (("a", "integer"), ("b", "boolean"))
    )
    made = grammar("gemma4", "required", tools=(first, second))
    assert accepts(made, "<|tool_call>call:b{x:true,y:false}<tool_call|>")
    assert not begins(made, "<|tool_call>call:b{x:true,y:3")
    day = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}}
    with pytest.raises(InvalidRequest, match="tools: strict: "):
        grammar("gemma4", tools=(Tool("loose", day), Tool("strict", dict(day), strict=True)))


def test_bounds_of_a_list_that_nothing_meets_hold_nothing_back() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "array", "minItems": 5, "maxItems": 2}}}
    grammar("gemma4", tools=(Tool("f", schema),))


def test_definitions_are_told_to_arguments_that_refer_to_them_alone() -> None:
    """A large schema is not multiplied by its arguments."""
    shared = {"p": {"type": "string"}}
    properties = {"plain": {"type": "integer"}, "other": {"$ref": "#/$defs/p"}}
    found = arguments_of({"type": "object", "properties": properties, "$defs": shared})
    assert found is not None
    assert [("$defs" in schema) for _, schema, _ in found] == [False, True]


def test_a_bare_call_leaves_other_json_free() -> None:
    made = grammar("llama3-json")
    assert accepts(made, llama3(("now", "{}")))
    assert accepts(made, '{"age": 3}')
    assert not begins(made, '{"name": "Bob"')
    pythonic = grammar("llama4-pythonic")
    assert accepts(pythonic, "[1, 2]")
    assert not begins(pythonic, "[weather(when=")


def _check(family: str, text: str, tools: tuple[Tool, ...], special: dict[str, int]) -> tuple[list[str], str]:
    """Reads an answer, whose calls must be valid; the names that were called, and the other text."""
    reader = ResponseReader(BY_NAME[family], tools=tools, special=special)
    events = joined([event for char in text for event in reader.push(char)] + reader.finish())
    names = [event.name for event in events if isinstance(event, CallBegins)]
    values = [json.loads(event.text) for event in events if isinstance(event, CallArguments)]
    for name, value in zip(names, values, strict=True):
        schema = next(tool.schema for tool in tools if tool.name == name)
        assert jsonschema_rs.is_valid(schema, value), (text, value)
    return names, "".join(event.text for event in events if isinstance(event, Content | Reasoning))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("is_special", [False, True], ids=["marks as text", "marks as tokens"])
@pytest.mark.parametrize("family", CALLING)
def test_random_calls_are_read_and_valid(family: str, is_special: bool) -> None:
    rng = random.Random(family)
    special = special_of(family) if is_special else {}
    tools = (PICKY, _REST, Tool("now"))
    made = grammar(family, "required", tools=tools, special=special, thinks=False)
    walks = (walk(made, rng, _CLOSERS, special) for _ in range(60))
    found = list(islice((text for text in walks if text is not None), 2))
    assert len(found) == 2
    for text in found:
        names, rest = _check(family, text, tools, special)
        assert names, text
        assert not rest.strip(), text


@pytest.mark.parametrize("is_special", [False, True], ids=["marks as text", "marks as tokens"])
@pytest.mark.parametrize("family", [name for name in CALLING if name != "gpt-oss"])
def test_calls_in_random_text_are_read_and_valid(family: str, is_special: bool) -> None:
    rng = random.Random(family)
    special = special_of(family) if is_special else {}
    calls = BY_NAME[family].calls
    assert calls is not None
    start = f"Well, {calls.mark}" if calls.mark else "[pick("
    made = grammar(family, "auto", tools=(PICKY,), special=special)
    walks = (walk(made, rng, (*_CLOSERS, calls.mark or "]"), special, start) for _ in range(60))
    found = list(islice((text for text in walks if text is not None), 2))
    assert len(found) == 2
    for text in found:
        names, rest = _check(family, text, (PICKY,), special)
        assert names, text
        assert rest.startswith("Well, " if calls.mark else ""), text
