import json
from typing import Any

import pytest

from chairlift.lab.bench.answer import StreamedAnswer, message_of, read_llm_serving, read_openai
from chairlift.lab.bench.record import Ending


def openai(*values: Any) -> StreamedAnswer:
    """The events, a second apart; text is passed unchanged."""
    answer = StreamedAnswer()
    for at, value in enumerate(values):
        line = value if isinstance(value, str) else f"data: {json.dumps(value)}"
        read_openai(answer, line.encode(), float(at))
    return answer


def text(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}


def delta(finish: str | None = None, **values: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": values, "finish_reason": finish}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}}


def test_every_chunk_of_a_completion_is_timestamped() -> None:
    answer = openai(": hello", text("a"), text(""), text("b", "length"), USAGE, "data: [DONE]")
    assert list(answer.times) == [1.0, 2.0, 3.0]
    assert (answer.last_s, answer.num_tokens, answer.prompt_tokens) == (3.0, 3, 4)
    assert answer.judge(3) == (Ending.FULL, "")
    assert answer.judge(4) == (Ending.SHORT, "")


def test_cached_tokens_are_those_that_the_server_tells_of() -> None:
    def told(**usage: Any) -> int | None:
        return openai(text("a", "length"), {"choices": [], "usage": usage}).cached_tokens

    assert told(prompt_tokens=9, prompt_tokens_details={"cached_tokens": 6, "audio_tokens": 0}) == 6
    assert told(prompt_tokens=9, prompt_tokens_details={"cached_tokens": 0}) == 0
    assert told(prompt_tokens=9, prompt_tokens_details=None) is told(prompt_tokens=9) is None


def test_a_role_without_text_is_no_token() -> None:
    answer = openai(delta(role="assistant", content=""), delta(content="a"), delta("stop"), "data: [DONE]")
    assert list(answer.times) == [1.0]
    assert answer.last_s == 2.0
    assert openai(delta(role="assistant", content="a")).times.tolist() == [0.0]


@pytest.mark.parametrize("part", [{"reasoning_content": "hm"}, {"reasoning": "hm"}, {"tool_calls": [{"index": 0}]}])
def test_reasoning_and_tool_calls_are_tokens(part: dict[str, Any]) -> None:
    assert openai(delta(role="assistant", **part)).times.tolist() == [0.0]


def test_a_finish_without_text_is_a_token_only_as_the_first_chunk() -> None:
    assert openai(text("", "length")).times.tolist() == [0.0]
    assert openai(text("a"), text("", "length")).times.tolist() == [0.0]


def test_chunks_are_counted_where_the_server_does_not() -> None:
    answer = openai(text("a"), text("b", "length"))
    assert answer.output_tokens is None
    assert answer.num_tokens == 2
    assert answer.judge(2) == (Ending.FULL, "")


def test_an_answer_that_does_not_end_has_failed() -> None:
    assert openai(text("a"), text("b")).judge(2) == (Ending.FAILED, "the answer broke off")
    assert openai("data: [DONE]").judge(1) == (Ending.FAILED, "the answer has no tokens")


def test_an_error_in_the_stream_is_a_failure_with_its_message() -> None:
    answer = openai(text("a"), {"error": {"message": "out of\nmemory", "code": 500}}, "data: [DONE]")
    assert answer.judge(1) == (Ending.FAILED, "out of memory")
    assert openai({"object": "error", "message": "too long"}).error == "too long"
    assert "cannot be read" in openai("data: {oops").error


def llm_serving(*lines: str) -> StreamedAnswer:
    answer = StreamedAnswer()
    for at, line in enumerate(lines):
        read_llm_serving(answer, line.encode(), float(at))
    return answer


def said(**values: Any) -> str:
    return json.dumps({"event": "message", "retry": 30000, "data": [values]})


def test_llm_serving_has_a_line_for_each_token_and_a_summary() -> None:
    summary = said(generated_text="ab", finish_reason="length", generated_tokens=2)
    answer = llm_serving(": ping", said(generated_text="a"), "data: " + said(generated_text=""), summary)
    assert list(answer.times) == [1.0, 2.0]
    assert (answer.last_s, answer.num_tokens) == (2.0, 2)
    assert answer.judge(2) == (Ending.FULL, "")


def test_llm_serving_of_newer_servers_has_an_object_in_each_line() -> None:
    token, summary = ({"generated_text": "a"}, {"generated_text": "a", "finish_reason": "eos", "generated_tokens": 1})
    answer = llm_serving(json.dumps({"data": token}), json.dumps({"data": summary}))
    assert (len(answer.times), answer.judge(1)) == (1, (Ending.FULL, ""))


def test_llm_serving_sends_errors_as_text() -> None:
    token = said(generated_text="Error202: prompt out of range")
    end = said(generated_text="Error202: prompt out of range", finish_reason="prompt_out_of_range", generated_tokens=0)
    ending, reason = llm_serving(token, end).judge(5)
    assert ending is Ending.FAILED
    assert reason == "prompt_out_of_range: Error202: prompt out of range"


def test_llm_serving_without_its_summary_broke_off() -> None:
    assert llm_serving(said(generated_text="a")).judge(1)[0] is Ending.FAILED
    assert "cannot be read" in llm_serving('{"data": []}').error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"error": {"message": "a  b"}}, "a b"),
        ({"error": "flat", "error_type": "x"}, "flat"),
        ({"detail": [1]}, '{"detail":[1]}'),
        ("plain", "plain"),
        (None, "None"),
    ],
)
def test_errors_of_all_servers_become_one_line(error: Any, words: str) -> None:
    assert message_of(error) == words
    assert len(message_of("long " * 100)) == 200
