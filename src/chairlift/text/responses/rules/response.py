"""The grammar of an answer, by the template of its family: reasoning, then calls, or an answer of a given shape.

Always: what the grammar allows, the reader reads, and inside a call that is held to its tool's schema, the arguments
are valid by it. Without calls, shape or budget there is no grammar: the model writes freely.
"""

from collections.abc import Mapping, Sequence

from chairlift.core.structured import Structured
from chairlift.text.responses.reading.reader import MAX_BLANKS
from chairlift.text.responses.rules.calls import (
    HeldTool,
    braced_call,
    json_calls,
    named_call,
    python_calls,
    tagged_call,
)
from chairlift.text.responses.rules.schemas import schema_of
from chairlift.text.responses.templates.template import (
    BracedCall,
    Calls,
    Channels,
    JsonCall,
    NamedCall,
    PythonCall,
    ResponseTemplate,
)
from chairlift.text.responses.tools.tool import Tool
from chairlift.text.structured.grammar import nested
from chairlift.text.structured.lark import Rules, either, escaped, json_value

_LINE = r"\n?"
_BLANKS = rf"[ \t\r\n]{{0,{MAX_BLANKS}}}"


def response_grammar(
    template: ResponseTemplate,
    tools: Sequence[Tool],
    must_call: bool,
    *,
    parallel: bool = True,
    structured: Structured | None = None,
    thinks: bool = False,
    in_reasoning: bool = False,
    thinking_budget: int | None = None,
    special: Mapping[str, int] | None = None,
) -> Structured | None:
    """`tools`: those that may be called; `must_call`: one of them is. `thinks`: the model may begin with reasoning;
    `in_reasoning`: the prompt has opened it. `special`: ids of the vocabulary's special tokens by their texts."""
    limit = thinking_budget if template.reasoning or template.channels else None
    if not tools and structured is None and limit is None:
        return None
    rules = Rules(special or {})
    held = [HeldTool(tool.name, schema_of(tool), bool(tool.strict)) for tool in tools]
    if template.channels:
        shape = nested(structured) if structured else None
        made = channel_grammar(rules, template.channels, held, must_call, shape, thinks, limit)
        return Structured("response", made)
    thought = _thought(rules, template, thinks, in_reasoning, limit)
    if not held and not thought:
        return structured
    body = _body(rules, template, held, must_call, parallel, structured)
    return Structured("response", rules.grammar(f"{thought} {body}".strip()))


def _thought(rules: Rules, template: ResponseTemplate, thinks: bool, in_reasoning: bool, budget: int | None) -> str:
    span = template.reasoning
    if span is None or not (in_reasoning or (thinks and budget != 0)):
        return ""
    if budget == 0:
        return rules.text(span.close)
    text = rules.until(span.close) if budget is None else rules.at_most(budget, span.close)
    if in_reasoning:
        return text
    if rules.begins_special(span.open):
        opened = rules.text(span.open, _BLANKS)
    else:
        opened = rules.lazy(_BLANKS + escaped(span.open))
    return f"({opened} {text})?"


def _body(
    rules: Rules,
    template: ResponseTemplate,
    held: list[HeldTool],
    must_call: bool,
    parallel: bool,
    structured: Structured | None,
) -> str:
    shape = f"/{_BLANKS}/ {nested(structured)}" if structured else None
    if not held:
        return shape or rules.free()
    assert template.calls is not None
    num_calls = None if parallel and template.calls.can_repeat else 1
    if not must_call and shape is None:
        return _freely(rules, template.calls, held, num_calls)
    calls = _at_once(rules, template.calls, held, num_calls)
    return calls if must_call else f"({calls} | {shape})"


def _freely(rules: Rules, calls: Calls, held: list[HeldTool], most: int | None) -> str:
    """Text, in which calls may be opened."""
    begun = f"{rules.until(calls.mark)} {_behind_mark(rules, calls, held, most)}" if calls.mark else ""
    if not calls.open and not calls.section:
        bare = _notation(rules, calls, held, most, is_bare=True)
        return f"({bare} | {begun} | {rules.free()})" if begun else f"({bare} | {rules.free()})"
    return f"({begun} | {rules.free()})" if most == 1 else f"({begun})* {rules.free()}"


def _at_once(rules: Rules, calls: Calls, held: list[HeldTool], most: int | None) -> str:
    """Calls and nothing else."""
    if not calls.open and not calls.section:
        bare = _notation(rules, calls, held, most, is_bare=True)
        return f"({rules.text(calls.lead)})? {bare}" if calls.lead else bare
    call = rules.rule(_behind_mark(rules, calls, held, most))
    first = f"{rules.text(calls.mark, _BLANKS)} {call}"
    is_one = most == 1 or calls.section or getattr(calls.notation, "is_list", False)
    return first if is_one else f"{first} ({rules.text(calls.mark, _LINE)} {call})*"


def _behind_mark(rules: Rules, calls: Calls, held: list[HeldTool], most: int | None) -> str:
    if calls.section is None:
        return _closed(rules, calls, held, most)
    call = rules.rule(f"{rules.text(calls.open, _LINE)} {_closed(rules, calls, held, 1)}")
    return f"{call}{'' if most == 1 else '+'} {rules.text(calls.section.close, _LINE)}"


def _closed(rules: Rules, calls: Calls, held: list[HeldTool], most: int | None) -> str:
    inside = _notation(rules, calls, held, most, is_bare=False)
    blanks = "" if isinstance(calls.notation, NamedCall) else _LINE
    return f"{inside} {rules.text(calls.close, blanks)}"


def _notation(rules: Rules, calls: Calls, held: list[HeldTool], most: int | None, is_bare: bool) -> str:
    notation = calls.notation
    if isinstance(notation, JsonCall):
        return json_calls(rules, notation, held, most, is_bare)
    if isinstance(notation, PythonCall):
        return python_calls(rules, notation, held, most, is_bare)
    if isinstance(notation, NamedCall):
        return named_call(rules, notation, held)
    if isinstance(notation, BracedCall):
        return braced_call(rules, notation, held)
    return tagged_call(rules, notation, held)


def channel_grammar(
    rules: Rules,
    channels: Channels,
    tools: Sequence[HeldTool],
    must_call: bool,
    shape: str | None,
    thinks: bool,
    budget: int | None,
) -> str:
    """For answers of several messages, each in its channel: what `channels` reads. `must_call`: where there are tools.
    `shape`: of the answer, as a part of a grammar."""
    before = [_message(rules, channels, channels.reasoning, budget)] if thinks and budget != 0 else []
    if tools and not must_call:
        before.append(_message(rules, channels, channels.calls, None))
    lasts = [_call(rules, channels, tool) for tool in tools]
    if not (tools and must_call):
        lasts.append(_last(rules, channels, shape))
    many = f"({' | '.join(before)})*" if budget is None else " ".join(f"({each})?" for each in before)
    return rules.grammar(f"{many if before else ''} {either(lasts)}")


def _message(rules: Rules, channels: Channels, channel: str, budget: int | None) -> str:
    """One that another follows."""
    text = rules.until(channels.end) if budget is None else rules.at_most(budget, channels.end)
    head = rules.text(channels.channel + channel + channels.message)
    return rules.rule(f"{head} {text} {rules.text(channels.start + channels.role)}")


def _last(rules: Rules, channels: Channels, shape: str | None) -> str:
    head = rules.text(channels.channel + channels.content[0])
    json = f"({rules.text(' ' + channels.constrain + 'json')})?" if shape else ""
    return rules.rule(f"{head} {json} {rules.text(channels.message)} {shape or rules.free()}")


def _call(rules: Rules, channels: Channels, tool: HeldTool) -> str:
    recipient = channels.recipient + tool.name
    inside = rules.text(f"{channels.channel}{channels.calls} {recipient}")
    before = rules.text(f" {recipient}{channels.channel}{channels.calls}")
    forms = either([rules.text(text + "json") for text in (f" {channels.constrain}", channels.constrain, " ")])
    body = f"({forms})? {rules.text(channels.message)} {json_value(tool.schema)}"
    return rules.rule(f"({inside} | {before}) {body}")
