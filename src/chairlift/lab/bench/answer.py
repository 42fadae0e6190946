"""Readers of streamed answers, line by line, for each API.

A chunk counts if it can carry a token: not one that only opens a chat (a role without text) or only closes a choice (a
finish without text), unless it is the first. Lines that are not JSON are comments.
"""

from array import array
from collections.abc import Callable
from typing import Any

import msgspec

from chairlift.lab.bench.record import Ending
from chairlift.lab.bench.target import Api


class StreamedAnswer:
    """What has arrived of an answer so far."""

    __slots__ = ("cached_tokens", "error", "has_ended", "last_s", "output_tokens", "prompt_tokens", "times")

    def __init__(self) -> None:
        self.times: array[float] = array("d")
        self.last_s = 0.0
        self.output_tokens: int | None = None  # by the server's count
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None  # of the prompt
        self.has_ended = False  # the stream itself said so
        self.error = ""

    @property
    def num_tokens(self) -> int:
        return len(self.times) if self.output_tokens is None else self.output_tokens

    def judge(self, asked_tokens: int) -> tuple[Ending, str]:
        """How an answer ended whose connection is done, with the reason if it failed."""
        if self.error:
            return Ending.FAILED, self.error
        if not self.has_ended:
            return Ending.FAILED, "the answer broke off"
        if self.num_tokens == 0:
            return Ending.FAILED, "the answer has no tokens"
        return (Ending.FULL if self.num_tokens >= asked_tokens else Ending.SHORT), ""


ReadLine = Callable[[StreamedAnswer, bytes, float], None]  # a line and its time of arrival


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptTokens(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptTokens | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


_chunk = msgspec.json.Decoder(_Chunk).decode


def read_openai(answer: StreamedAnswer, line: bytes, now: float) -> None:
    if not line.startswith(b"data:"):
        return
    if line[5:].strip() == b"[DONE]":
        answer.has_ended = True
        return
    try:
        chunk = _chunk(line[5:])
    except msgspec.DecodeError as error:
        answer.error = f"a chunk cannot be read: {error}"
        return
    if chunk.choices:
        _read_choice(answer, chunk.choices[0], now)
    if chunk.usage is not None:
        answer.output_tokens = chunk.usage.completion_tokens
        answer.prompt_tokens = chunk.usage.prompt_tokens
        details = chunk.usage.prompt_tokens_details
        answer.cached_tokens = None if details is None else details.cached_tokens
    if chunk.error is not None or chunk.object == "error":
        answer.error = message_of(chunk.message if chunk.error is None else chunk.error)


def _read_choice(answer: StreamedAnswer, choice: _Choice, now: float) -> None:
    delta, text = choice.delta, choice.text
    if delta is not None:
        text = delta.content or delta.reasoning_content or delta.reasoning or ("..." if delta.tool_calls else "")
    answer.last_s = now
    if choice.finish_reason is not None:
        answer.has_ended = True
        is_token = bool(text) or not answer.times
    else:
        is_token = bool(text) or delta is None or delta.role is None
    if is_token:
        answer.times.append(now)


class _Line(msgspec.Struct):
    generated_text: str = ""
    finish_reason: str | None = None
    generated_tokens: int | None = None


class _Event(msgspec.Struct):
    data: list[_Line] | _Line  # a list of one from older servers


_event = msgspec.json.Decoder(_Event).decode
_ENDS = ("eos", "length")


def llm_serving_line(line: bytes) -> _Line:
    """What a line of an llm-serving stream says; IndexError or DecodeError if it is none."""
    data = _event(line.removeprefix(b"data:")).data
    return data[0] if isinstance(data, list) else data


def read_llm_serving(answer: StreamedAnswer, line: bytes, now: float) -> None:
    if not line.removeprefix(b"data:").lstrip().startswith(b"{"):
        return
    try:
        said = llm_serving_line(line)
    except (msgspec.DecodeError, IndexError) as error:
        answer.error = f"a line cannot be read: {error}"
        return
    if said.finish_reason is None:
        answer.last_s = now
        answer.times.append(now)
        return
    answer.has_ended = True  # the summary, not a token
    answer.output_tokens = said.generated_tokens
    if said.finish_reason not in _ENDS:
        answer.error = f"{said.finish_reason}: {said.generated_text}"


READERS: dict[Api, ReadLine] = {
    Api.COMPLETIONS: read_openai,
    Api.CHAT: read_openai,
    Api.LLM_SERVING: read_llm_serving,
}


def message_of(error: Any) -> str:
    """The message of any of these servers' error objects, in one line."""
    if isinstance(error, dict):
        inner = error.get("error", error)
        inner = inner.get("message", inner) if isinstance(inner, dict) else inner
        error = inner if isinstance(inner, str) else msgspec.json.encode(inner).decode()
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:197] + "..."
