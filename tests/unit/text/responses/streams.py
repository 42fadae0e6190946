"""Answers as models of each family write them, and what a client is to get of them.

Written by hand from the formats: (family, what it shows, text, content, reasoning, calls); arguments as JSON values.
"""

from typing import Any, NamedTuple

from chairlift.text.responses.tools.tool import read_tools
from fakes import tool_worlds

TOOLS = read_tools(tool_worlds.TOOLS)


class Recorded(NamedTuple):
    family: str
    shows: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    in_reasoning: bool = False


_ODD = {"city": 'Zü"rich\\n\n</tool_call> 日本 \\', "days": 3}
_ODD_JSON = '{"city": "Zü\\"rich\\\\n\\n</tool_call> 日本 \\\\", "days": 3}'
_NESTED = {"city": "", "where": {"lat": -1.5e3}, "tags": ["a", "b{}", "]"]}
_NESTED_JSON = '{"city": "", "where": {"lat": -1.5e3}, "tags": ["a", "b{}", "]"]}'
_BERN = {"city": "Bern"}


def _json_calls(family: str, write: Any) -> list[Recorded]:
    """The same calls by a family that writes arguments in JSON; `write` makes the text of several."""
    return [
        Recorded(family, "one call", write(("weather", '{"city": "Bern"}')), calls=(("weather", _BERN),)),
        Recorded(family, "empty arguments", write(("now", "{}")), calls=(("now", {}),)),
        Recorded(family, "odd strings", write(("weather", _ODD_JSON)), calls=(("weather", _ODD),)),
        Recorded(family, "nested", write(("weather", _NESTED_JSON)), calls=(("weather", _NESTED),)),
    ]


def _several(family: str, write: Any) -> Recorded:
    text = write(("weather", '{"city": "Bern"}'), ("now", "{}"), ("weather", _NESTED_JSON))
    return Recorded(family, "several", text, calls=(("weather", _BERN), ("now", {}), ("weather", _NESTED)))


def hermes(*calls: tuple[str, str]) -> str:
    return "\n".join(f'<tool_call>\n{{"name": "{n}", "arguments": {a}}}\n</tool_call>' for n, a in calls)


def deepseek(*calls: tuple[str, str]) -> str:
    each = [f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{a}\n```<｜tool▁call▁end｜>" for n, a in calls]
    return f"<｜tool▁calls▁begin｜>{chr(10).join(each)}<｜tool▁calls▁end｜>"


def deepseek_31(*calls: tuple[str, str]) -> str:
    each = [f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{a}<｜tool▁call▁end｜>" for n, a in calls]
    return f"<｜tool▁calls▁begin｜>{''.join(each)}<｜tool▁calls▁end｜>"


def mistral(*calls: tuple[str, str]) -> str:
    return "".join(f"[TOOL_CALLS]{n}[ARGS]{a}" for n, a in calls)


def mistral_list(*calls: tuple[str, str]) -> str:
    each = [f'{{"name": "{n}", "arguments": {a}, "id": "abcdefgh{i}"}}' for i, (n, a) in enumerate(calls)]
    return f"[TOOL_CALLS][{', '.join(each)}]"


def llama3(call: tuple[str, str]) -> str:
    return f'{{"name": "{call[0]}", "parameters": {call[1]}}}'


def gpt_oss(call: tuple[str, str]) -> str:
    return f"<|channel|>commentary to=functions.{call[0]} <|constrain|>json<|message|>{call[1]}<|call|>"


THINKING = "<think>\nHm.\nYes.\n</think>\n\n"
_CODER = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    '<parameter=exact>\nTrue\n</parameter>\n<parameter=tags>\n["a", "b"]\n</parameter>\n</function>\n</tool_call>'
)
_CODER_ARGUMENTS = {"city": "Zürich", "days": 3, "exact": True, "tags": ["a", "b"]}
_CODER_EMPTY = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
_CODER_LINES = (
    '<tool_call>\n<function=weather>\n<parameter=city>\n\na "b" \\n\n</para\n\n</parameter>\n</function>\n</tool_call>'
)
_GEMMA = (
    '<|tool_call>call:weather{city:<|"|>Zü"rich {},\n\\<|"|>,days:3,exact:true,tags:[<|"|>a]<|"|>,<|"|><|"|>],'
    "where:{lat:-1.5}}<tool_call|>"
)
_GEMMA_ARGUMENTS = {
    "city": 'Zü"rich {},\n\\', "days": 3, "exact": True, "tags": ["a]", ""], "where": {"lat": -1.5},
}  # fmt: skip
_GEMMA_NOW = "<|tool_call>call:now{}<tool_call|>"
_GEMMA_LOOSE = (
    '<|tool_call>call:weather { "city" : Bern , days:<|"|>3<|"|>,where:{"lat":None,<|"|>a b<|"|>:"x"} }<tool_call|>'
)
_GLM = (
    "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n"
    "<arg_value>3</arg_value>\n</tool_call>"
)
_PYTHON = (
    """[weather(city='Zü"rich\\n', days=3, exact=True, where={'lat': -1.5, 'x': None}, tags=["a)", 'b,']), now()]"""
)
_PYTHON_CALLS = (
    (
        "weather",
        {"city": 'Zü"rich\n', "days": 3, "exact": True, "where": {"lat": -1.5, "x": None}, "tags": ["a)", "b,"]},
    ),
    ("now", {}),
)

STREAMS: list[Recorded] = [
    *(
        Recorded(family, "content only", "Hello.\n\nYou {are} [it].\n", "Hello.\n\nYou {are} [it].\n")
        for family in (
            "hermes",
            "qwen3-coder",
            "gemma4",
            "glm",
            "deepseek",
            "mistral",
            "mistral-list",
            "llama3-json",
            "llama4-pythonic",
            "lfm2",
            "generic",
            "reasoning",
        )
    ),
    *(Recorded(family, "nothing", "") for family in ("hermes", "llama3-json", "gpt-oss")),
    *_json_calls("hermes", hermes),
    _several("hermes", hermes),
    *_json_calls("deepseek", deepseek),
    _several("deepseek", deepseek),
    *_json_calls("deepseek-v3.1", deepseek_31),
    _several("deepseek-v3.1", deepseek_31),
    *_json_calls("mistral", mistral),
    _several("mistral", mistral),
    *_json_calls("mistral-list", mistral_list),
    _several("mistral-list", mistral_list),
    *_json_calls("llama3-json", llama3),
    *_json_calls("gpt-oss", gpt_oss),
    Recorded("hermes", "reasoning and call", THINKING + hermes(("now", "{}")), "", "Hm.\nYes.", (("now", {}),)),
    Recorded("hermes", "reasoning that the prompt opened", "Hm.\n</think>\n\nYes.", "Yes.", "Hm.", (), True),
    Recorded("hermes", "empty reasoning", "<think>\n\n</think>\n\nYes.", "Yes."),
    Recorded("hermes", "reasoning cut", "<think>\nHm.</thin", "", "Hm.</thin"),
    Recorded("hermes", "a call in reasoning", "<think><tool_call></think>Yes.", "Yes.", "<tool_call>"),
    Recorded("hermes", "reasoning later", "Yes. <think>no</think>", "Yes. <think>no</think>"),
    Recorded(
        "hermes",
        "text around",
        "A\n\n" + hermes(("now", "{}")) + "\nB\n" + hermes(("now", "{}")),
        "AB",
        "",
        (("now", {}), ("now", {})),
    ),
    Recorded(
        "hermes", "looks like a mark", "a <tool_ca <tool_call <<tool_calls> b", "a <tool_ca <tool_call <<tool_calls> b"
    ),
    Recorded("hermes", "no JSON", "<tool_call>\nf(x)\n</tool_call> b", "<tool_call>\nf(x)\n</tool_call> b"),
    Recorded("hermes", "no name", '<tool_call>{"x": 1}</tool_call>', '<tool_call>{"x": 1}</tool_call>'),
    Recorded("hermes", "cut before the name", 'a\n<tool_call>\n{"name": "wea', "a"),
    Recorded(
        "hermes",
        "arguments first",
        '<tool_call>{"arguments": {"a": 1}, "name": "now"}</tool_call>',
        "",
        "",
        (("now", {"a": 1}),),
    ),
    Recorded(
        "hermes",
        "arguments in a string",
        '<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        "",
        (("now", {"a": 1}),),
    ),
    Recorded("hermes", "no arguments", '<tool_call>{"name": "now"}</tool_call>', "", "", (("now", {}),)),
    Recorded(
        "hermes", "null arguments", '<tool_call>{"name": "now", "arguments": null}</tool_call>', "", "", (("now", {}),)
    ),
    Recorded(
        "hermes",
        "a bracket too many",
        '<tool_call>{"name": "now", "arguments": {}}}</tool_call>x',
        "}x",
        "",
        (("now", {}),),
    ),
    Recorded(
        "hermes",
        "a bracket too few",
        '<tool_call>{"name": "now", "arguments": {}</tool_call>x',
        "x",
        "",
        (("now", {}),),
    ),
    Recorded(
        "hermes",
        "never closed",
        '<tool_call>{"name": "now", "arguments": {}}\n<tool_call>{"name": "now"}',
        "",
        "",
        (("now", {}), ("now", {})),
    ),
    Recorded("qwen3-coder", "one call", "Well.\n\n" + _CODER, "Well.", "", (("weather", _CODER_ARGUMENTS),)),
    Recorded(
        "qwen3-coder", "several", _CODER + "\n" + _CODER_EMPTY, "", "", (("weather", _CODER_ARGUMENTS), ("now", {}))
    ),
    Recorded(
        "qwen3-coder",
        "a mark in a value",
        '<tool_call>\n<function=weather>\n<parameter=tags>\n["</parameter>"]\n</parameter>\n</function>\n</tool_call>',
        "",
        "",
        (("weather", {"tags": ["</parameter>"]}),),
    ),
    Recorded("qwen3-coder", "lines", _CODER_LINES, "", "", (("weather", {"city": '\na "b" \\n\n</para\n'}),)),
    Recorded("qwen3-coder", "reasoning and call", THINKING + _CODER_EMPTY, "", "Hm.\nYes.", (("now", {}),)),
    Recorded(
        "qwen3-coder",
        "on one line",
        "<tool_call><function=now><parameter=x>1</parameter></function></tool_call>",
        "",
        "",
        (("now", {"x": 1}),),
    ),
    Recorded("gemma4", "one call", _GEMMA, calls=(("weather", _GEMMA_ARGUMENTS),)),
    Recorded("gemma4", "several", _GEMMA + _GEMMA_NOW, calls=(("weather", _GEMMA_ARGUMENTS), ("now", {}))),
    Recorded(
        "gemma4",
        "looks like JSON",
        _GEMMA_LOOSE,
        calls=(("weather", {"city": "Bern", "days": 3, "where": {"lat": None, "a b": "x"}}),),
    ),
    Recorded(
        "gemma4", "reasoning and call", f"<|channel>thought\nHm.\n<channel|>{_GEMMA_NOW}", "", "Hm.", (("now", {}),)
    ),
    Recorded("gemma4", "empty reasoning", "<|channel>thought\n<channel|>Yes.", "Yes."),
    Recorded("gemma4", "reasoning that the prompt opened", "Hm.\n<channel|>Yes.", "Yes.", "Hm.", (), True),
    Recorded("gemma4", "no call", "<|tool_call>call: me<tool_call|>", "<|tool_call>call: me<tool_call|>"),
    Recorded("glm", "one call", _GLM, "", "", (("weather", {"city": "Bern", "days": 3}),)),
    Recorded("glm", "empty arguments", "<tool_call>now</tool_call>", "", "", (("now", {}),)),
    Recorded("llama4-pythonic", "several in Python", _PYTHON, "", "", _PYTHON_CALLS),
    Recorded(
        "lfm2",
        "several in Python",
        f"Well.<|tool_call_start|>{_PYTHON}<|tool_call_end|>So.",
        "Well.So.",
        "",
        _PYTHON_CALLS,
    ),
    Recorded(
        "olmo3",
        "several",
        '<function_calls>\nnow()\nweather(city="Bern")\n</function_calls>',
        "",
        "",
        (("now", {}), ("weather", _BERN)),
    ),
    Recorded(
        "llama4-pythonic",
        "several",
        '[weather(city="Bern", exact=True), now(), weather(tags=["a", "b"])]',
        "",
        "",
        (("weather", _BERN | {"exact": True}), ("now", {}), ("weather", {"tags": ["a", "b"]})),
    ),
    Recorded("llama4-pythonic", "a number in quotes", '[weather(days="3")]', "", "", (("weather", {"days": 3}),)),
    Recorded("llama4-pythonic", "looks like a call", "[weather] is (fine)", "[weather] is (fine)"),
    Recorded("llama4-pythonic", "an unknown name", "[paris(a=1)]", "[paris(a=1)]"),
    Recorded("mistral", "with an id", '[TOOL_CALLS]now[CALL_ID]abcdefgh1[ARGS]{"a": 1}', "", "", (("now", {"a": 1}),)),
    Recorded("mistral", "reasoning", "[THINK]Hm.[/THINK]Yes.", "Yes.", "Hm."),
    Recorded("mistral-list", "blanks", '[TOOL_CALLS] [ {"name":"now" , "arguments":{} } ]', "", "", (("now", {}),)),
    Recorded(
        "llama3-json",
        "with a tag",
        '<|python_tag|>{"type": "function", "name": "now", "parameters": {}}',
        "",
        "",
        (("now", {}),),
    ),
    Recorded(
        "llama3-json",
        "text and a tag",
        'Well. <|python_tag|>{"name": "now", "parameters": {}}',
        "Well. ",
        "",
        (("now", {}),),
    ),
    Recorded("llama3-json", "other JSON", '{"name": "Bob", "age": 3}', '{"name": "Bob", "age": 3}'),
    Recorded("llama3-json", "other JSON cut", '{"name": "Bob', '{"name": "Bob'),
    Recorded(
        "gpt-oss",
        "reasoning and answer",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        "Yes.",
        "Hm.",
    ),
    Recorded(
        "gpt-oss",
        "reasoning, preamble, call",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>"
        "commentary<|message|>I look.<|end|><|start|>assistant"
        " to=functions.weather<|channel|>commentary json<|message|>"
        '{"city": "Bern"}<|call|>',
        "I look.",
        "Hm.",
        (("weather", _BERN),),
    ),
    Recorded("gpt-oss", "no header", "Plain words.", "Plain words."),
    Recorded("gpt-oss", "no header, a blank first", " and so on.", " and so on."),
    Recorded("gpt-oss", "no header, a bracket first", "<b>Yes</b> or <|no|>", "<b>Yes</b> or <|no|>"),
    Recorded("gpt-oss", "no header, a recipient first", " to=functions.x is no call", " to=functions.x is no call"),
    Recorded(
        "gpt-oss",
        "no header behind reasoning",
        "<|channel|>analysis<|message|>Hm.<|end|> Plain <|start|>assistant<|channel|>final<|message|>words.<|return|>",
        " Plain words.",
        reasoning="Hm.",
    ),
    Recorded("gpt-oss", "no channel", "<|message|>Yes.<|return|>", "Yes."),
    Recorded("gpt-oss", "answer cut", "<|channel|>final<|message|>Ye", "Ye"),
]
FAMILIES = sorted({each.family for each in STREAMS})


def recorded_of(family: str) -> list[Recorded]:
    return [each for each in STREAMS if each.family == family]
