"""The families of models whose answers are known, as data.

The order is that in which they are tried on a chat template (`find`): the more particular first. `literals` are texts
that only templates of the family hold, all of them.
"""

from dataclasses import dataclass

from chairlift.text.responses.templates.template import (
    BracedCall,
    Calls,
    Channels,
    JsonCall,
    NamedCall,
    Notation,
    PythonCall,
    ResponseTemplate,
    Span,
    TaggedCall,
)

THINK = Span("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Family:
    template: ResponseTemplate
    literals: tuple[str, ...]
    lacks: tuple[str, ...] = ()  # of templates that look alike

    def fits(self, chat_template: str) -> bool:
        has = all(literal in chat_template for literal in self.literals)
        return has and not any(literal in chat_template for literal in self.lacks)


def _tagged(notation: Notation) -> Calls:
    return Calls(notation, "<tool_call>", "</tool_call>")


def _deepseek(notation: Notation) -> Calls:
    section = Span("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
    return Calls(notation, "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", section)


_QWEN_TAGS = TaggedCall(Span("<function=", ">"), Span("<parameter=", ">"), Span("", "</parameter>"), "</function>")
_GLM_TAGS = TaggedCall(Span("", "\n"), Span("<arg_key>", "</arg_key>"), Span("<arg_value>", "</arg_value>"))
_MISTRAL = Calls(NamedCall("[ARGS]", id_mark="[CALL_ID]"), "[TOOL_CALLS]")
_MISTRAL_LIST = Calls(JsonCall(is_list=True, says_id=True), "[TOOL_CALLS]")
_LFM2 = Calls(PythonCall(), "<|tool_call_start|>", "<|tool_call_end|>")
_OLMO = Calls(PythonCall(is_list=False), "<function_calls>", "</function_calls>")
_LLAMA3 = Calls(JsonCall("parameters", says_type=True), lead="<|python_tag|>", can_repeat=False)
_FENCED = NamedCall("\n```json\n", "function<｜tool▁sep｜>", "\n```")
_GEMMA4 = Calls(BracedCall('<|"|>'), "<|tool_call>call:", "<tool_call|>")
_HARMONY = Channels(
    channel="<|channel|>",
    message="<|message|>",
    start="<|start|>",
    end="<|end|>",
    last=("<|call|>", "<|return|>"),
    constrain="<|constrain|>",
)
_HERMES = ResponseTemplate("hermes", THINK, _tagged(JsonCall()))
FAMILIES: tuple[Family, ...] = (
    Family(ResponseTemplate("gpt-oss", channels=_HARMONY), ("<|channel|>", "to=", "functions.", "<|message|>")),
    Family(ResponseTemplate("qwen3-coder", THINK, _tagged(_QWEN_TAGS)), ("<function=", "<parameter=", "<tool_call>")),
    Family(ResponseTemplate("gemma4", Span("<|channel>thought", "<channel|>"), _GEMMA4), ("<|tool_call>call:",)),
    Family(ResponseTemplate("glm", THINK, _tagged(_GLM_TAGS)), ("<arg_key>", "<arg_value>", "<tool_call>")),
    Family(
        ResponseTemplate("deepseek-v3.1", THINK, _deepseek(NamedCall("<｜tool▁sep｜>"))),
        ("tool['function']['name'] + '<｜tool▁sep｜>'",),
    ),
    Family(
        ResponseTemplate("deepseek", THINK, _deepseek(_FENCED)), ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json")
    ),
    Family(ResponseTemplate("mistral", Span("[THINK]", "[/THINK]"), _MISTRAL, ids="nine"), ("[TOOL_CALLS]", "[ARGS]")),
    Family(ResponseTemplate("mistral-list", None, _MISTRAL_LIST, ids="nine"), ("[TOOL_CALLS]",)),
    Family(ResponseTemplate("lfm2", None, _LFM2), ("<|tool_list_start|>",)),
    Family(ResponseTemplate("olmo3", None, _OLMO), ("<function_calls>", "<functions>")),
    Family(_HERMES, ("<tool_call>", '"arguments"'), lacks=("<tool_calls>",)),
    Family(_HERMES, ("<tool_call>", '\\"arguments\\"'), lacks=("<tool_calls>",)),
    Family(ResponseTemplate("llama4-pythonic", None, Calls(PythonCall())), ("<|header_start|>", "func_name1(")),
    Family(ResponseTemplate("llama3-json", None, _LLAMA3), ('"parameters": ', "ipython", "tools")),
)
# For any other chat template: calls are asked for in the system message, and written as the most usual families do.
GENERIC = ResponseTemplate("generic", THINK, _tagged(JsonCall()), adds_tools=True)
REASONING = ResponseTemplate("reasoning", THINK)  # no tools at all
BY_NAME = {each.name: each for each in (*(family.template for family in FAMILIES), GENERIC, REASONING)}
