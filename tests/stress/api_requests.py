"""Hostile requests: bodies of both APIs with fields that no client should send, and bytes that are hardly HTTP.

Always: a request is the bytes of one connection; its sender is owed an answer or the end of the connection.
"""

import json
from typing import Any, NamedTuple

from hypothesis import strategies as st


class Hostile(NamedTuple):
    kind: str
    sent: bytes


_DEEP: Any = []
for _ in range(200):
    _DEEP = [_DEEP]
_VALUES = st.sampled_from(
    [
        None, True, False, 0, 1, -1, 2, 7, 100, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0,
        5e-324, 1e308, float("nan"), float("inf"), -float("inf"), "", " ", "\0", "\ud800", "\udfff\ud800", "é雪🎿", "﷽",
        "<|im_end|>", "{{ 7 * 7 }}", "../../etc/passwd", "1", "1e999", "true", "a" * 100_000, "{" * 1000, [], [[]],
        {}, [{}], [None], [-1], [10**18], ["a"] * 5000, [1] * 5000, [[1]] * 300, [[]] * 300, {"a": {"b": [1]}}, _DEEP,
        {"role": "user"}, [{"role": "\ud800", "content": "x"}], [{"role": "user", "content": [{"type": "image"}]}],
        [{"role": "assistant", "content": [{"type": "tool_use"}]}],
        {"5": 1e300, "-1": 2, "x": 3}, {str(i): 1 for i in range(2000)}, {"include_usage": 5}, {"": None},
    ]
) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)  # fmt: skip
_BASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("/v1/completions", "CompletionRequest", {"prompt": "hello", "max_tokens": 4}),
    ("/v1/chat/completions", "ChatRequest", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}),
    ("/v1/messages", "MessagesRequest", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}),
    ("/v1/messages/count_tokens", "CountTokensRequest", {"messages": [{"role": "user", "content": "hi"}]}),
    ("/models/any", "GenerateRequest", {"inputs": "hello", "parameters": {"max_new_tokens": 4}}),
    ("/models/any/generate", "Parameters", {"inputs": "hello", "parameters": {"max_new_tokens": 4}}),
    ("/models/any/generate_stream", "Parameters", {"inputs": "hello", "parameters": {"max_new_tokens": 4}}),
    ("/tokenize", "TokenizeRequest", {"prompt": "hello"}),
    ("/detokenize", "DetokenizeRequest", {"tokens": [5, 6]}),
)


def bodies(schemas: dict[str, Any]) -> st.SearchStrategy[Hostile]:
    """Bodies in which some fields, of all that the server describes, hold something hostile."""

    @st.composite
    def make(draw: st.DrawFn) -> Hostile:
        path, schema, base = draw(st.sampled_from(_BASES))
        names = [*schemas[schema]["properties"], "unknown", "tools", "response_format"]
        most = draw(st.sampled_from((1, 1, 1, 3)))
        changed = draw(st.dictionaries(st.sampled_from(names), _VALUES, min_size=1, max_size=most))
        body = base | ({"parameters": base["parameters"] | changed} if schema == "Parameters" else changed)
        data = json.dumps(body).encode()
        if draw(st.integers(0, 9)) == 0:
            data = draw(_broken(data))
        headers = draw(st.sampled_from((b"",) * 6 + _HEADERS))
        return Hostile(f"fields of {path}", post(path.encode(), data, headers))

    return make()


def post(path: bytes, body: bytes, headers: bytes = b"") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%bContent-Length: %d\r\n\r\n"
    return head % (path, headers, len(body)) + body


_HEADERS = (
    b"X-Deadline-Ms: 0\r\n", b"X-Deadline-Ms: -5\r\n", b"X-Deadline-Ms: 99999999999999999999\r\n",
    b"X-Deadline-Ms: 1e3\r\n", b"X-Deadline-Ms: \xff\r\n", b"X-Request-Id: \xff\x01\r\n",
    b"X-Request-Id: %b\r\n" % (b"i" * 5000), b"Content-Type: text/plain\r\n",
    b"Content-Type: application/json; charset=utf-16\r\n", b"Content-Encoding: gzip\r\n", b"Accept: \xff\r\n",
    b"Authorization: Bearer \xff\r\n", b"Origin: \xff\r\n", b"Expect: 100-continue\r\n", b"Cookie: a\r\n",
)  # fmt: skip


@st.composite
def _broken(draw: st.DrawFn, data: bytes) -> bytes:
    """Cut, or with other bytes in the middle."""
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(
        st.sampled_from((b"", b"\xff\xfe", b"\x00", b"\\ud800", b"{", b"]", b"," * 50)) | st.binary()
    )


_BODY = b'{"prompt": "a", "max_tokens": 2}'
_ASK = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
_PATHS = (
    b"/",
    b"/v1/models/\xff\xfe", b"/v1/models/%ff%fe", b"/v1/models/%00", b"/v1/models/%", b"/v1/models/" + b"a" * 9000,
    b"/models/%2e%2e/%2f", b"//", b"/../../etc/passwd", b"*", b"http://elsewhere/v1/models", b"/?%ff=%ff&&=", b"/#x",
    b"/live/requests/-1", b"/live/requests/99999999999999999999999", b"/live/requests/%D9%A1", b"/v1/models/\x01",
    b"/metrics?name[]=%ff", b"/health/../metrics", "/é".encode(), b"/a b", b"",
)  # fmt: skip
_METHODS = (
    b"GET",
    b"HEAD",
    b"OPTIONS",
    b"PUT",
    b"DELETE",
    b"TRACE",
    b"CONNECT",
    b"PATCH",
    b"get",
    b"PRI",
    b"X" * 300,
    b"",
)
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/", b"")
_LENGTHS = (
    b"0", b"1", b"9999", b"-1", b"+32", b"1e3", b"0x20", b" 32 ", b"32, 32", b"", b"4294967297", b"9" * 40, b"\xb2",
    b"32\r\nContent-Length: 31", b"32\r\nTransfer-Encoding: chunked", b"99999999999",
)  # fmt: skip
_CHUNKS = (
    b"0\r\n\r\n", b"20\r\n" + _BODY + b"\r\n0\r\n\r\n", b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\na", b"5\r\nabc",
    b"1\r\n{\r\n" * 50, b"20;a=b\r\n" + _BODY + b"\r\n0\r\nTrailer: x\r\n\r\n", b"20\n" + _BODY + b"\n0\n\n",
    b"\r\n\r\n",
    b"20\r\n" + _BODY + b"xx\r\n0\r\n\r\n", b"7fffffff\r\n" + b"a" * 70_000,
)  # fmt: skip
_LINES = (
    b"A" * 70_000 + b": a", b"A: " + b"a" * 70_000, b"\r\n".join(b"H%d: x" % i for i in range(200)), b"no colon",
    b": empty", b"A : space", b"A: \x00", b"A: \xff", b" folded", b"A: a\r\n folded", b"\x00: a", b"A: a\rB: b",
    b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13",
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", b"Host: y", b"Host:",
    b"Expect: a-miracle", b"Connection: close, keep-alive, x",
)  # fmt: skip
_OTHERS = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 50,
    b"\x00" * 1000, b"GET", b"GET / HTTP/1.1\r\nHost: x", b"GET /\r\n\r\n", b"\n\n", b"A" * 100_000, b"SSH-2.0-x\r\n",
)  # fmt: skip


@st.composite
def garbage(draw: st.DrawFn) -> Hostile:
    kind = draw(st.sampled_from(("lines", "lengths", "chunks", "headers", "pipelines", "bytes")))
    return Hostile(f"raw: {kind}", draw(_RAW[kind]))


@st.composite
def _first_line(draw: st.DrawFn) -> bytes:
    parts = (draw(st.sampled_from(parts)) for parts in (_METHODS, _PATHS, _VERSIONS))
    return b" ".join(parts) + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@st.composite
def _pipeline(draw: st.DrawFn) -> bytes:
    """Requests one after the other on a connection, with garbage between them or after them."""
    whole = _ASK + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY
    get = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    piece = st.sampled_from((whole, whole, get, get, whole * 8, get * 40)) | _first_line() | st.sampled_from(_OTHERS)
    return b"".join(draw(st.lists(piece, min_size=2, max_size=5)))


_RAW: dict[str, st.SearchStrategy[bytes]] = {
    "lines": _first_line(),
    "lengths": st.sampled_from(_LENGTHS).map(lambda length: _ASK + b"Content-Length: " + length + b"\r\n\r\n" + _BODY),
    "chunks": st.lists(st.sampled_from(_CHUNKS), min_size=1, max_size=3).map(
        lambda chunks: _ASK + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks)
    ),
    "headers": st.lists(st.sampled_from(_LINES), min_size=1, max_size=3).map(
        lambda lines: _ASK + b"\r\n".join(lines) + b"\r\nContent-Length: %d\r\n\r\n" % len(_BODY) + _BODY
    ),
    "pipelines": _pipeline(),
    "bytes": st.sampled_from(_OTHERS) | st.binary(min_size=1, max_size=300),
}
