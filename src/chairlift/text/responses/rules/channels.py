"""Rules of a grammar for answers of several messages, each in its channel: what `channels` reads."""

from collections.abc import Sequence

from chairlift.text.responses.rules.calls import HeldTool
from chairlift.text.responses.templates.template import Channels
from chairlift.text.structured.lark import Rules, either, json_value


def channel_grammar(
    rules: Rules,
    channels: Channels,
    tools: Sequence[HeldTool],
    must_call: bool,
    shape: str | None,
    thinks: bool,
    budget: int | None,
) -> str:
    """`must_call`: where there are tools. `shape`: of the answer, as a part of a grammar."""
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
