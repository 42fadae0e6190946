from datetime import datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from chairlift.core.errors import InvalidRequest
from chairlift.text import chat as chats
from chairlift.text.template_limits import TemplateFails, TemplateTooCostly
from chairlift.text.tokenizer import Tokenizer
from unit.text.vocabularies import byte_level

CHATML = """{% for message in messages %}
    {% if loop.first and message['role'] != 'system' %}
        {{- '<|im_start|>system\nBe kind.<|im_end|>\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}{% set system = messages[0]['content']|trim %}{% set messages = messages[1:] %}
{%- else %}{% set system = '' %}{% endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\nToday Date: ' + (date_string or '26 Jul 2024') + '\n\n' + system }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""
MISTRAL = """{{ bos_token }}{% for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{%- if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}
{%- else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}
{%- endfor %}"""
QWEN = """{%- if tools %}{{ 'tools' | tojson(indent=2) }}{% endif %}
{%- set ns = namespace(last=0) %}
{%- for message in messages %}
    {%- if message.role == 'note' %}{% continue %}{% endif %}
    {%- set ns.last = loop.index0 %}
    {{- '<|im_start|>' + message.role + '\n' + message.content.split('</think>')[-1].lstrip('\n') + '<|im_end|>\n' }}
    {{- {'name': message.name, 'é': '<&>'} | tojson if message.name is defined else '' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}"""
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "mistral": MISTRAL, "qwen": QWEN}
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hi"}],
    [
        {"role": "user", "content": "  Größe? \n"},
        {"role": "assistant", "content": "<think>\nhm</think>\n1 < 2 & 'x'"},
        {"role": "user", "content": "😀"},
    ],
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(model: Tokenizer, *given: Any, **more: Any) -> str:
    """As people may see it."""
    return model.controls.disclaim(chats.render(model, *given, **more))


def tokenizer(template: str | None) -> Tokenizer:
    return Tokenizer(byte_level(), bos_id=0, add_bos=True, chat_template=template, template_tokens=TOKENS)


def expected(template: str, chat: list[dict[str, Any]], **options: Any) -> str:
    return str(render_jinja_template([chat], chat_template=template, **TOKENS, **options)[0][0])


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("add", [True, False])
def test_a_chat_reads_as_transformers_renders_it(name: str, chat: list[dict[str, Any]], add: bool) -> None:
    template = TEMPLATES[name]
    assert render(tokenizer(template), chat, add) == expected(template, chat, add_generation_prompt=add)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("start", ["The answer is", " The answer is ", "", "a\n"])
def test_a_final_message_is_continued_as_transformers_does(name: str, start: str) -> None:
    chat = [*CHATS[0], {"role": "assistant", "content": start}]
    ours = render(tokenizer(TEMPLATES[name]), chat, add_generation_prompt=False, continue_final_message=True)
    assert ours == expected(TEMPLATES[name], chat, continue_final_message=True)


def test_template_arguments_reach_the_template() -> None:
    chat = [{"role": "note", "content": "x"}, {"role": "user", "content": "Hi", "name": "Zoë"}]
    ours = render(tokenizer(QWEN), chat, template_kwargs={"enable_thinking": False})
    assert ours == expected(QWEN, chat, add_generation_prompt=True, enable_thinking=False)
    assert ours.endswith("</think>\n\n")


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    whole = render(tokenizer(CHATML), [{"role": "user", "content": "Hello"}])
    assert render(tokenizer(CHATML), [{"role": "user", "content": parts}]) == whole


def test_the_messages_of_the_caller_stay_as_they_are() -> None:
    chat = [{"role": "assistant", "content": "a"}]
    render(tokenizer(CHATML), chat, add_generation_prompt=False, continue_final_message=True)
    assert chat == [{"role": "assistant", "content": "a"}]


def test_the_begin_token_is_not_doubled() -> None:
    model = Tokenizer(byte_level(), bos_id=0, add_bos=True, chat_template="{{ '<|a|>' + messages[0].content }}")
    ids = model.encode(render(model, CHATS[0]), add_special=False)
    assert ids.count(0) == 1 and model.decode(ids) == "Hi"


def test_the_date_is_at_hand() -> None:
    year = render(tokenizer("{{ strftime_now('%Y') }}"), CHATS[0])
    assert year == str(datetime.now().year)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('be nice') }}", "be nice"),
        ("{% if %}", "Expected an expression"),
        ("{{ messages[0].role.nope.nope }}", "has no attribute"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "does not end"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_messages(template: str | None, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        render(tokenizer(template), CHATS[0])
    assert caught.value.field == "messages"


@pytest.mark.parametrize(
    ("chat", "field"),
    [
        ([], "messages"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content"),
        ([CHATS[0][0], {"role": "user", "content": "\ud83d"}], "messages[1].content"),
    ],
)
def test_messages_that_are_not_text_are_refused_by_place(chat: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        render(tokenizer(CHATML), chat)
    assert caught.value.field == field


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="continue_final_message"):
        render(tokenizer(CHATML), CHATS[0], add_generation_prompt=True, continue_final_message=True)
    with pytest.raises(InvalidRequest, match="chat_template_kwargs"):
        render(tokenizer(CHATML), CHATS[0], template_kwargs={"messages": []})
    with pytest.raises(InvalidRequest, match="does not show"):
        render(tokenizer("x"), CHATS[0], add_generation_prompt=False, continue_final_message=True)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ("Hello", 'messages: must be a list such as [{"role": "user", "content": "Hello"}], got str'),
        ({"role": "user", "content": "Hello"}, "got dict"),
        (5, "got int"),
        ([None], "messages[0]: must have a role, as in [{"),
        ([{"role": "user", "content": "a"}, {"content": "b"}], "messages[1]: must have a role"),
        ([{"role": 3, "content": "a"}], "messages[0]: must have a role"),
    ],
)
def test_what_is_not_a_list_of_messages_is_refused_with_an_example(messages: Any, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        render(tokenizer(CHATML), messages)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("failures", "num_tries"),
    [
        ([TemplateFails("a")], 4),  # the messages, and three other forms of calls
        ([TemplateTooCostly("a")], 1),
        ([TemplateFails("a"), TemplateTooCostly("b")], 2),
    ],
)
def test_a_template_that_takes_too_much_is_not_tried_on_other_forms(
    monkeypatch: pytest.MonkeyPatch, failures: list[TemplateFails], num_tries: int
) -> None:
    tries = []

    def fail(*_: object) -> str:
        tries.append(failures[min(len(tries), len(failures) - 1)])
        raise tries[-1]

    monkeypatch.setattr(chats, "run", fail)
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    with pytest.raises(InvalidRequest):
        chats.render(tokenizer("x"), [{"role": "assistant", "tool_calls": [call]}], escape_special_tokens=False)
    assert len(tries) == num_tries
