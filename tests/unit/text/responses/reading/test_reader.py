"""One reader for all families: recorded answers, whole and cut anywhere."""

import json
import random
import sys
from collections.abc import Iterable, Sequence

import pytest

from chairlift.text.responses.reading.cursor import MAX_KEPT
from chairlift.text.responses.reading.events import CallArguments, CallBegins, CallEnds, Content, Event, Reasoning
from chairlift.text.responses.reading.reader import ResponseReader
from chairlift.text.responses.templates.families import BY_NAME
from unit.text.responses.streams import FAMILIES, STREAMS, TOOLS, Recorded, hermes, recorded_of

SPECIAL = ("<|im_end|>", "<|endoftext|>", "<|channel|>", "<|message|>", "<|call|>", "[TOOL_CALLS]", "[ARGS]")


def read(family: str, pieces: Iterable[str], in_reasoning: bool = False, special: Sequence[str] = ()) -> list[Event]:
    reader = ResponseReader(BY_NAME[family], tools=TOOLS, in_reasoning=in_reasoning, special=special)
    events = [event for piece in pieces for event in reader.push(piece)]
    return events + reader.finish()


def joined(events: list[Event]) -> list[Event]:
    """Neighbours of one kind as one event."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Content) and isinstance(last, Content):
            out[-1] = Content(last.text + event.text)
        elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
            out[-1] = Reasoning(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            out[-1] = CallArguments(event.index, last.text + event.text)
        else:
            out.append(event)
    return out


def cuts(text: str, rng: random.Random) -> list[str]:
    places = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.randint(1, 8))))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def _id(recorded: Recorded) -> str:
    return f"{recorded.family}: {recorded.shows}"


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_answers_are_read(family: str) -> None:
    for recorded in recorded_of(family):
        events = joined(read(family, [recorded.text], recorded.in_reasoning))
        assert "".join(event.text for event in events if isinstance(event, Content)) == recorded.content
        assert "".join(event.text for event in events if isinstance(event, Reasoning)) == recorded.reasoning
        names = [event.name for event in events if isinstance(event, CallBegins)]
        arguments = [json.loads(event.text) for event in events if isinstance(event, CallArguments)]
        assert list(zip(names, arguments, strict=True)) == list(recorded.calls), recorded.shows
        assert [event.index for event in events if isinstance(event, CallEnds)] == list(range(len(names)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_events_do_not_depend_on_the_cuts(family: str) -> None:
    for recorded in recorded_of(family):
        text, whole = recorded.text, joined(read(family, [recorded.text], recorded.in_reasoning))
        assert joined(read(family, text, recorded.in_reasoning)) == whole
        for at in range(len(text) + 1):
            assert joined(read(family, [text[:at], text[at:]], recorded.in_reasoning)) == whole
        rng = random.Random(text)
        for _ in range(20):
            assert joined(read(family, cuts(text, rng), recorded.in_reasoning)) == whole


@pytest.mark.sampled(12)
@pytest.mark.parametrize("recorded", STREAMS, ids=_id)
def test_an_answer_that_ends_anywhere_is_read_the_same_however_cut(recorded: Recorded) -> None:
    for end in range(len(recorded.text)):
        text = recorded.text[:end]
        whole = joined(read(recorded.family, [text], recorded.in_reasoning, SPECIAL))
        assert joined(read(recorded.family, text, recorded.in_reasoning, SPECIAL)) == whole
        begun = [event.index for event in whole if isinstance(event, CallBegins)]
        assert begun == [event.index for event in whole if isinstance(event, CallEnds)]


def test_arguments_stream_as_they_come() -> None:
    reader = ResponseReader(BY_NAME["hermes"], tools=TOOLS)
    reader.push('<tool_call>\n{"name": "weather", "arguments": ')
    assert reader.push('{"city": "Be') == [CallArguments(0, '{"city": "Be')]
    assert reader.push('rn"') == [CallArguments(0, 'rn"')]


def test_strings_in_tags_stream_as_they_come() -> None:
    reader = ResponseReader(BY_NAME["qwen3-coder"], tools=TOOLS)
    reader.push("<tool_call>\n<function=weather>\n<parameter=city>\n")
    assert reader.push('Be"r\n') == [CallArguments(0, 'Be\\"r')]
    assert reader.push("n</para") == [CallArguments(0, "\\nn")]


def test_marked_strings_stream_as_they_come() -> None:
    reader = ResponseReader(BY_NAME["gemma4"], tools=TOOLS)
    reader.push('<|tool_call>call:weather{where:{name:<|"|>')
    assert reader.push('Be"r<|') == [CallArguments(0, 'Be\\"r')]
    assert reader.push("n") == [CallArguments(0, "<|n")]


def test_brackets_may_be_opened_without_end() -> None:
    events = read("gemma4", ["<|tool_call>call:now{a:" + "[" * 100_000])
    assert events[0] == CallBegins(0, "now")


def test_a_call_that_is_cut_shows_what_was_written() -> None:
    text = hermes(("weather", '{"city": "Bern"}'))
    at = text.index("Be") + 2
    assert read("hermes", [text[:at]]) == [CallBegins(0, "weather"), CallArguments(0, '{"city": "Be'), CallEnds(0)]
    assert read("hermes", ['<tool_call>{"name": "now"']) == [CallBegins(0, "now"), CallEnds(0)]


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("hermes", "<tool_call>"),
        ("hermes", '<tool_call>\n{"na'),
        ("hermes", '<tool_call>\n{"arguments": {"city": "Be'),
        ("hermes", '<tool_call>\n{"name": "wea'),
        ("mistral", "[TOOL_CALLS]"),
        ("mistral", "[TOOL_CALLS]wea"),
        ("mistral-list", '[TOOL_CALLS][{"na'),
        ("llama3-json", '<|python_tag|>{"name": "'),
        ("gemma4", "<|tool_call>call:wea"),
        ("qwen3-coder", "<tool_call>\n<func"),
        ("qwen3-coder", "<tool_call>\n<function=wea"),
    ],
)
def test_a_call_that_is_cut_before_its_name_is_left_out(family: str, head: str) -> None:
    for pieces in ([f"Well.\n{head}"], f"Well.\n{head}"):
        assert joined(read(family, pieces)) == [Content("Well.")]


@pytest.mark.parametrize("tail", ["<tool_call> is", '<tool_call>{"x": 1}', '<tool_call>{"name": 5', "<tool_cal"])
def test_what_is_no_call_stays_text_where_the_answer_ends(tail: str) -> None:
    assert joined(read("hermes", [f"Well.\n{tail}"])) == [Content(f"Well.\n{tail}")]


@pytest.mark.parametrize("family", [family for family in FAMILIES if BY_NAME[family].calls])
def test_an_answer_that_is_cut_inside_the_mark_behind_its_calls_has_no_content(family: str) -> None:
    calls = BY_NAME[family].calls
    assert calls is not None
    for recorded in (each for each in recorded_of(family) if each.calls and not each.content):
        for close in filter(None, {calls.close, calls.section.close if calls.section else ""}):
            start = recorded.text.rfind(close)
            for end in range(start + 1, start + len(close)) if start >= 0 else ():
                events = read(family, [recorded.text[:end]], recorded.in_reasoning)
                assert not [event for event in events if isinstance(event, Content) and event.text.strip()], end


def test_bad_json_shows_what_was_written() -> None:
    text = '<tool_call>{"name": "now", "arguments": {\'a\': 1}}</tool_call>x'
    assert joined(read("hermes", [text])) == [
        CallBegins(0, "now"), CallArguments(0, "{'a': 1}}"), CallEnds(0), Content("x"),
    ]  # fmt: skip


def test_without_tools_calls_are_text() -> None:
    reader = ResponseReader(BY_NAME["hermes"])
    text = hermes(("now", "{}"))
    assert joined(reader.push(text) + reader.finish()) == [Content(text)]


def test_special_tokens_without_meaning_are_dropped() -> None:
    text = "a<|im_end|>b[ARGS]c" + '[TOOL_CALLS]now[ARGS]{"a": "x<|endoftext|>y"}<|im_end|>'
    events = joined(read("mistral", text, special=SPECIAL))
    assert events[0] == Content("abc")
    assert events[2] == CallArguments(0, '{"a": "xy"}')


def test_a_call_that_is_too_long_before_its_name_is_text() -> None:
    text = '<tool_call>{"x": "' + "y" * MAX_KEPT + '", "name": "now"}</tool_call>'
    assert joined(read("hermes", [text])) == [Content(text)]
    assert joined(read("hermes", [text[i : i + 999] for i in range(0, len(text), 999)])) == [Content(text)]


def test_time_is_linear_in_the_text() -> None:
    """By the steps of the interpreter, which a clock does not disturb."""

    def steps(num: int) -> int:
        reader, count = ResponseReader(BY_NAME["hermes"], tools=TOOLS, special=SPECIAL), 0

        def trace(*_: object) -> object:
            nonlocal count
            count += 1
            return trace

        sys.settrace(trace)
        try:
            for piece in ['<tool_call>{"x":"\\', "\n<", '"}', "<tool_call>"] * num:
                reader.push(piece)
            reader.finish()
        finally:
            sys.settrace(None)
        return count

    assert steps(200) < 2.5 * steps(100)


def test_little_is_held_back() -> None:
    reader = ResponseReader(BY_NAME["hermes"], tools=TOOLS)
    shown = sum(len(event.text) for _ in range(1000) for event in reader.push("ab<t\n") if isinstance(event, Content))
    assert shown >= 5 * 1000 - 32
