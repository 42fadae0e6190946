"""Calls and results as chat templates want them."""

import json
from typing import Any

import pytest

from chairlift.core.errors import InvalidRequest
from chairlift.models.source import locate
from chairlift.text import chat as chats
from chairlift.text.find import load_tokenizer
from chairlift.text.responses.rules.response import response_grammar
from chairlift.text.responses.templates.families import BY_NAME
from chairlift.text.responses.tools.history import call_id, prepared
from chairlift.text.responses.tools.tool import read_tools
from unit.text.responses.grammars import accepts
from unit.text.test_chat import CHATML, render, tokenizer

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}},
            },
        },
    }
]
ARGUMENTS = {"city": "Zürich", "days": 3, "exact": True}


def call(arguments: Any = None, call_id: str = "call_1") -> dict[str, Any]:
    text = json.dumps(ARGUMENTS) if arguments is None else arguments
    return {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": text}}


CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call()]},
    {"role": "tool", "tool_call_id": "call_1", "content": "12 C"},
]
# How templates of each family write a call that an assistant made, in their own literals.
_CALLS = "{%- for message in messages %}{%- for tool in message.tool_calls or [] %}"
_END = "{%- endfor %}{%- endfor %}{#- tools #}"
WRITTEN = {
    "hermes": """{{- '<tool_call>\n{"name": "' }}{{- tool.function.name }}{{- '", "arguments": ' }}"""
    """{{- tool.function.arguments | tojson }}{{- '}\n</tool_call>' }}""",
    "qwen3-coder": """{{- '\n<tool_call>\n<function=' + tool.function.name + '>\n' }}
{%- for name, value in tool.function.arguments|items %}
{{- '<parameter=' + name + '>\n' }}{{- value | string }}{{- '\n</parameter>\n' }}{%- endfor %}
{{- '</function>\n</tool_call>' }}""",
    "gemma4": """{{- '<|tool_call>call:' + tool['function']['name'] + '{' }}
{%- for name, value in tool['function']['arguments'] | dictsort %}{{- ',' if not loop.first }}{{- name }}:
{{- '<|"|>' + value + '<|"|>' if value is string else value | tojson }}{%- endfor %}{{- '}<tool_call|>' }}""",
    "deepseek": """{%- if message['content'] is none %}{{- '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type']
+ '<｜tool▁sep｜>' + tool['function']['name'] + '\n```json\n' + tool['function']['arguments']
+ '\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>' }}{%- endif %}""",
    "deepseek-v3.1": """{{- '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['function']['name'] + '<｜tool▁sep｜>'
+ tool['function']['arguments'] | tojson + '<｜tool▁call▁end｜><｜tool▁calls▁end｜>' }}""",
    "mistral": """{%- if tool.id|length != 9 %}{{- raise_exception("nine letters") }}{%- endif %}
{{- '[TOOL_CALLS]' + tool.function.name + '[CALL_ID]' + tool.id + '[ARGS]' + tool.function.arguments|tojson }}""",
    "mistral-list": """{{- "[TOOL_CALLS][" }}{%- set out = tool.function|tojson %}{{- out[:-1] }}
{%- if tool.id|length != 9 %}{{- raise_exception("nine letters") }}{%- endif %}{{- ', "id": "' + tool.id + '"}]' }}""",
    "llama3-json": """{{- '{"name": "' + tool.function.name + '", ' }}{{- '"parameters": ' }}
{{- tool.function.arguments | tojson }}{{- "}" }}""",
    "gpt-oss": """{{- " to=functions." + tool.function.name + "<|channel|>commentary json<|message|>" }}
{{- tool.function.arguments|tojson }}""",
}


def rendered(family: str, chat_template: str, chat: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
    messages, given = prepared(chat, tools, BY_NAME[family], chat_template)
    return render(tokenizer(chat_template), messages, tools=given)


@pytest.mark.parametrize("family", WRITTEN)
def test_a_call_in_history_is_one_that_the_grammar_allows(family: str) -> None:
    text = rendered(family, _CALLS + WRITTEN[family] + _END, CHAT, TOOLS)
    made = response_grammar(BY_NAME[family], read_tools(TOOLS), False)
    assert made is not None
    assert "Zürich" in text
    assert accepts(made, text)


def test_tools_reach_a_template_that_knows_them() -> None:
    text = rendered("hermes", "{{ tools | tojson }}", CHAT, TOOLS)
    assert json.loads(text) == TOOLS


def test_a_template_without_tools_has_them_explained() -> None:
    text = rendered("generic", CHATML, CHAT, TOOLS)
    assert text.startswith("<|im_start|>system\nYou may call functions")
    assert json.dumps(TOOLS[0]) in text
    assert '<tool_call>\n{"name": "<name>", "arguments": {"<argument>": "<value>"}}\n</tool_call>' in text
    written = json.dumps({"name": "weather", "arguments": ARGUMENTS}, ensure_ascii=False)
    assert f"<|im_start|>assistant\n<tool_call>\n{written}\n</tool_call><|im_end|>" in text
    assert "<|im_start|>user\n<tool_response>\n12 C\n</tool_response><|im_end|>" in text


def test_results_in_a_row_are_one_turn_where_they_are_text() -> None:
    chat = [*CHAT, {"role": "tool", "tool_call_id": "b", "content": "13 C"}]
    messages, _ = prepared(chat, TOOLS, BY_NAME["generic"], CHATML)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[-1]["content"].count("<tool_response>") == 2


def test_calls_come_one_by_one_where_the_family_writes_one_at_a_time() -> None:
    calls = {"role": "assistant", "content": "I look.", "tool_calls": [call(None, "a"), call(None, "b")]}
    results = [{"role": "tool", "tool_call_id": each, "content": each} for each in ("a", "b")]
    messages, _ = prepared([CHAT[0], calls, *results, CHAT[0]], TOOLS, BY_NAME["llama3-json"], "tools")
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool", "user"]
    assert [len(messages[at]["tool_calls"]) for at in (1, 3)] == [1, 1]
    assert [messages[at]["content"] for at in (1, 2, 3, 4)] == ["I look.", "a", "", "b"]


def test_results_are_fields_of_the_message_that_called_where_the_template_knows_no_role_for_them() -> None:
    calls = {"role": "assistant", "tool_calls": [call(None, "a"), call(None, "b")]}
    results = [{"role": "tool", "tool_call_id": each, "content": each} for each in ("b", "a")]
    messages, _ = prepared(
        [CHAT[0], calls, *results, CHAT[0]], TOOLS, BY_NAME["gemma4"], "tools message.tool_responses"
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[1]["tool_responses"] == [{"name": "weather", "response": each} for each in ("b", "a")]
    newer = "tools message.tool_responses follow.tool_call_id"
    messages, _ = prepared([CHAT[0], calls, *results], TOOLS, BY_NAME["gemma4"], newer)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]


def test_a_system_message_keeps_its_text() -> None:
    messages, _ = prepared([{"role": "system", "content": "Be kind."}, *CHAT], TOOLS, BY_NAME["generic"], CHATML)
    assert messages[0]["content"].startswith("Be kind.\n\nYou may call functions")


def test_control_tokens_in_tools_and_calls_stay_text() -> None:
    named = [{"type": "function", "function": {"name": "f", "description": "<|im_end|>"}}]
    chat = [CHAT[0], {"role": "assistant", "tool_calls": [call('{"city": "<|im_end|>"}')]}]
    model = load_tokenizer(locate(None))
    model.chat_template = CHATML + "{{ tools | tojson }}{{ messages[-1].tool_calls | tojson }}"
    messages, given = prepared(chat, named, BY_NAME["hermes"], model.chat_template)
    ids = model.encode(chats.render(model, messages, tools=given), add_special=False)
    assert ids.count(2) == 3  # one for each turn
    assert model.decode(ids, skip_special=False).count("<|im_end|>") == 5


def test_ids_are_nine_letters_where_the_family_wants_them() -> None:
    messages, _ = prepared(CHAT, TOOLS, BY_NAME["mistral"], "tools")
    given = messages[1]["tool_calls"][0]["id"]
    assert len(given) == 9
    assert given.isalnum()
    assert messages[2]["tool_call_id"] == given
    assert call_id(BY_NAME["mistral"], "abcdefgh1") == "abcdefgh1"
    assert call_id(BY_NAME["hermes"], "call_1") == "call_1"


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ("x", r"messages\[1\].tool_calls: must be a list"),
        ([{}], r"messages\[1\].tool_calls\[0\].function: must be an object"),
        ([call("{")], r"messages\[1\].tool_calls\[0\].function.arguments: must be a JSON object"),
        ([call("[1]")], r"messages\[1\].tool_calls\[0\].function.arguments: must be a JSON object"),
        ([call("[" * 9_000)], r"messages\[1\].tool_calls\[0\].function.arguments: is nested more than 200 levels"),
    ],
)
def test_calls_that_are_not_well_formed_are_refused_with_their_place(calls: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        prepared([CHAT[0], {"role": "assistant", "tool_calls": calls}], TOOLS, BY_NAME["hermes"], "")


def test_what_a_template_refuses_is_told() -> None:
    with pytest.raises(InvalidRequest, match="the chat template refuses them: no calls here"):
        rendered("hermes", "{{ raise_exception('no calls here') }}", CHAT, TOOLS)


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("x", "tools: must be a list"),
        ([{"type": "web"}], r"tools\[0\].type: must be"),
        ([{"function": {"name": "a b"}}], r"tools\[0\].function.name: must be of"),
        ([*TOOLS, *TOOLS], r"tools\[1\].function.name: 'weather' is the name of an earlier tool"),
        (
            [{"function": {"name": "f", "parameters": {"type": "array"}}}],
            r"tools\[0\].function.parameters.type: must be",
        ),
    ],
)
def test_tools_that_are_not_well_formed_are_refused_with_their_place(tools: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_tools(tools)
