"""The bytes of the llm-serving responses: key order, separators and line ends as its clients know them.

token object   {"id": 5, "logprob": 17.2, "special": false, "text": "a"}      logprob is the raw logit by default
sse line       {"event": "message", "retry": 30000, "data": [{...}]}\n        a list of one, and no "data:" before it
               {"event": "message", "retry": 30000, "data": {...}}\n          as newer servers and clients have it
other line     data:{...}\n
"""

import json
from typing import NamedTuple

_quoted = json.encoder.encode_basestring  # what json.dumps does to a text with ensure_ascii=False
EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class Frame(NamedTuple):
    """What stands around the content of a stream's line."""

    before: str
    after: str


_EVENT = '{"event": "message", "retry": 30000, "data": '
EVENTS = {"list": Frame(f"{_EVENT}[", "]}\n"), "object": Frame(_EVENT, "}\n")}  # by what `data` is
PLAIN = Frame("data:", "\n")


def token_object(token: int, likelihood: float, text: str, is_special: bool) -> str:
    special = "true" if is_special else "false"
    return f'{{"id": {token}, "logprob": {likelihood!r}, "special": {special}, "text": {_quoted(text)}}}'


def token_line(text: str, token: str, frame: Frame) -> bytes:
    content = f'{{"details": null, "generated_text": {_quoted(text)}, "tokens": {token}, "top_tokens": [{token}]}}'
    return _line(content, frame)


def summary_line(text: str, finish: str, num_tokens: int, tokens: list[str], frame: Frame) -> bytes:
    if frame == PLAIN:
        return PLAIN.before.encode() + full_line(text, finish, num_tokens, tokens)
    return _line(f'{{"details": null, {_summary(text, finish, num_tokens, tokens)}}}', frame)


def full_line(text: str, finish: str, num_tokens: int, tokens: list[str]) -> bytes:
    """`tokens`: token objects as JSON."""
    return f'{{{_summary(text, finish, num_tokens, tokens)}, "details": null}}\n'.encode()


def status_event(value: object) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\r\n\r\n".encode()


def wrapped(value: object) -> dict[str, object]:
    return {"event": "message", "retry": 30000, "data": value}


def _line(content: str, frame: Frame) -> bytes:
    return f"{frame.before}{content}{frame.after}".encode()


def _summary(text: str, finish: str, num_tokens: int, tokens: list[str]) -> str:
    return (
        f'"generated_text": {_quoted(text)}, "finish_reason": {_quoted(finish)}, '
        f'"generated_tokens": {num_tokens}, "prefill": [{tokens[0]}], "seed": 0, '
        f'"tokens": [{", ".join(tokens)}], "top_tokens": [[{tokens[0]}]]'
    )
