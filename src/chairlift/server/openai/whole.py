"""A whole answer as JSON, in pieces.

Always: other requests run between pieces that take long, while they are made and while they are sent. A piece that
several choices share is in memory once, and of an answer beyond `_KEPT` bytes no more is made than its client reads.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chairlift.server.admission.cost import PIECE_S

_LARGE, _KEPT = 65_536, 4_194_304  # bytes
_CHOICES, _NO_LOGPROBS = b'"choices":[', b'"logprobs":null'
_encode = msgspec.json.Encoder().encode


async def whole_response(pieces: Iterable[bytes]) -> Response:
    waiting, made, num_bytes = iter(pieces), list[bytes](), 0
    until = time.monotonic() + PIECE_S
    for piece in waiting:
        made.append(piece)
        num_bytes += len(piece)
        if num_bytes > _KEPT:
            return _Pieces(chain(made, waiting))
        if time.monotonic() > until:
            await asyncio.sleep(0)
            until = time.monotonic() + PIECE_S
    return _Pieces(made, num_bytes)


class _Pieces(Response):
    def __init__(self, pieces: Iterable[bytes], num_bytes: int | None = None) -> None:
        """`num_bytes`: of all, where they are known."""
        self.status_code = 200
        self.background = None
        self.raw_headers = [(b"content-type", b"application/json")]
        if num_bytes is not None:
            self.raw_headers.append((b"content-length", str(num_bytes).encode()))
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        group, size = list[bytes](), 0
        for piece in self._pieces:
            group.append(piece)
            size += len(piece)
            if size >= _LARGE:
                await send({"type": "http.response.body", "body": b"".join(group), "more_body": True})
                await asyncio.sleep(0)
                group, size = [], 0
        await send({"type": "http.response.body", "body": b"".join(group)})


def with_choices(answer: msgspec.Struct, choices: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """`answer`: all but its choices."""
    head, found, tail = _encode(answer).partition(_CHOICES)
    assert found and tail.startswith(b"]")  # no text of JSON holds it: quotes in texts are escaped
    yield head + found
    for index, choice in enumerate(choices):
        if index:
            yield b","
        yield from choice
    yield tail


def with_logprobs(choice: bytes, scores: Iterable[bytes] | None) -> Iterator[bytes]:
    """`choice`: encoded without them."""
    head, found, tail = choice.partition(_NO_LOGPROBS)
    assert found  # in no text of JSON, as above
    yield from (choice,) if scores is None else chain([head, b'"logprobs":'], scores, [tail])


def with_prompt_logprobs(pieces: Iterable[bytes], scores: Iterable[bytes]) -> Iterator[bytes]:
    """The object of these pieces with these scores as its last field, which is null so far."""
    last = b""
    for piece in pieces:
        yield last
        last = piece
    head, is_null, _ = last.rpartition(b"null}")
    assert is_null
    yield head
    yield from scores
    yield b"}"
