"""Families by their chat templates' literals; the excerpts are as short as they can be."""

import logging
from typing import Any

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.text.responses.templates.families import BY_NAME, GENERIC
from chairlift.text.responses.templates.find import begins_in_reasoning, find_template, special_texts, template_of
from chairlift.text.responses.templates.template import Calls, JsonCall, NamedCall, ResponseTemplate, Span
from unit.text.responses.grammars import tokenizer

_DEEPSEEK = "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + "
EXCERPTS = {
    "hermes": """{{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}""",
    "qwen3-coder": """{{- '<tool_call>\\n<function=' + tool_call.name + '>' }}{{- '<parameter=' + args_name + '>' }}""",
    "gemma4": "{{- '<|tool_call>call:' + function['name'] + '{' -}}{{- '}<tool_call|>' -}}",
    "glm": "<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>\\n<arg_value>{arg-value-1}</arg_value>",
    "deepseek": _DEEPSEEK + "tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n' + '```json' + '\\n'}}",
    "deepseek-v3.1": _DEEPSEEK + "tool['function']['name'] + '<｜tool▁sep｜>' + arguments}}",
    "mistral": "{{- '[TOOL_CALLS]' + tool_call.function.name }}{{- '[ARGS]' + arguments }}",
    "mistral-list": '{{- "[TOOL_CALLS][" }}{%- set out = tool_call.function|tojson %}',
    "llama3-json": """{%- if tools %}Environment: ipython{{- '"parameters": ' }}{{- tool_call.arguments | tojson }}""",
    "llama4-pythonic": "<|header_start|>Use exact format: [func_name1(param1=value1), func_name2(...)]",
    "lfm2": "List of tools: <|tool_list_start|>[",
    "olmo3": "<functions>{{ tools | tojson }}</functions> <function_calls>",
    "gpt-oss": '{{- "<|start|>assistant to=" }}{{- "functions." + name + "<|channel|>commentary " }}<|message|>',
    "generic": "{% for message in messages %}<|im_start|>{{ message.role }}{% endfor %}",
}  # fmt: skip
_THINKING = {"open": "<think>", "close": "</think>"}
_FUNCTION = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.arguments}"}}
_OWN = {"open": "<call>", "close": "</call>", "content": "json", "repeats": True, "transform": _FUNCTION}


@pytest.mark.parametrize("name", EXCERPTS)
def test_a_family_is_found_by_its_literals(name: str) -> None:
    found = find_template(EXCERPTS[name])
    assert found is not None
    assert found.name == name


def test_a_name_counts_alone() -> None:
    assert find_template(None, name="mistral") is BY_NAME["mistral"]
    with pytest.raises(
        InvalidConfig, match="x: no known format of tool calls .*; leave it out, .* or give one of deepseek, "
    ):
        find_template("", name="x")


def test_without_a_chat_template_there_is_none() -> None:
    assert find_template(None) is None


def own(**fields: Any) -> dict[str, Any]:
    return {"version": 1, "start_anchor": "<|im_start|>", "fields": {"content": {}, **fields}}


def test_a_template_that_the_model_brings_is_read() -> None:
    wanted = ResponseTemplate("own", Span("<think>", "</think>"), Calls(JsonCall(), "<call>", "</call>"))
    assert find_template("", declared=own(thinking=_THINKING, tool_calls=_OWN)) == wanted
    thinking = {"open": ["<think>\n"], "close_pattern": r"</think>\s*"}
    calls = _OWN | {"close_pattern": r"</call>\s*"}
    ends = {"close_pattern": r"<\|im_end\|>\s*"}
    assert find_template("", declared=own(content=ends, thinking=thinking, tool_calls=calls)) == wanted


_BY_NAME = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_GEMMA = {
    "open_pattern": r"<\|tool_call>call:(?P<name>\w+)", "close": "<tool_call|>", "repeats": True, "content": "json",
    "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]}, "transform": _BY_NAME,
}  # fmt: skip


def test_calls_whose_name_opens_them_are_read() -> None:
    span = {"open": "<|channel>thought\n", "close": "<channel|>"}
    made = find_template("", declared=own(thinking=span, tool_calls=_GEMMA))
    assert made is not None
    assert (made.reasoning, made.calls) == (BY_NAME["gemma4"].reasoning, BY_NAME["gemma4"].calls)
    named = {"open_pattern": r"<call>(?P<name>\w+)\[ARGS\]", "close": "</call>", "content": "json"}
    made = find_template("", declared=own(tool_calls=named | {"transform": _BY_NAME}))
    assert made is not None
    assert made.calls == Calls(NamedCall("[ARGS]"), "<call>", "</call>", can_repeat=False)


def test_one_that_cannot_be_expressed_is_no_matter_where_the_family_is_known(caplog: pytest.LogCaptureFixture) -> None:
    declared = own(tool_calls=_OWN | {"content": "xml-inline"})
    with caplog.at_level(logging.WARNING):
        assert find_template(EXCERPTS["qwen3-coder"], declared=declared) is BY_NAME["qwen3-coder"]
    assert not caplog.text


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"version": 2}, "version 2"),
        (own(image={}), "field 'image'"),
        (own(content={"open": "<answer>", "close": "</answer>"}), "content between marks"),
        (own(thinking={"open_pattern": "<.*>", "close": "</think>"}), "thinking: its marks are not one literal each"),
        (own(tool_calls=_OWN | {"content": "xml-inline"}), "tool_calls: not JSON"),
        (own(tool_calls=_OWN | {"content_args": {"unquoted_keys": True}}), "tool_calls: not plain JSON"),
        (own(tool_calls=_GEMMA | {"content_args": {"unquoted_keys": True}}), "tool_calls: its kind of JSON"),
        (own(tool_calls=_GEMMA | {"open_pattern": "<.*>"}), "tool_calls: its marks are not literals around a name"),
        (own(tool_calls=_OWN | {"transform": {"x": "{content.y}"}}), "tool_calls: its transform"),
    ],
)
def test_one_that_cannot_be_expressed_is_told_of(
    declared: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_template("", declared=declared) is GENERIC
    assert said in caplog.text


def test_a_loaded_model_has_a_family() -> None:
    found = template_of(tokenizer())
    assert found is GENERIC
    assert template_of(tokenizer(), "hermes") is BY_NAME["hermes"]
    assert special_texts(tokenizer())["<|im_end|>"] == 2


@pytest.mark.parametrize(
    ("end", "is_inside"), [("assistant\n<think>\n", True), ("<think>\n\n</think>\n\n", False), ("assistant\n", False)]
)
def test_a_prompt_may_end_inside_reasoning(end: str, is_inside: bool) -> None:
    assert begins_in_reasoning(BY_NAME["hermes"], end) == is_inside
    assert not begins_in_reasoning(BY_NAME["llama3-json"], end)
