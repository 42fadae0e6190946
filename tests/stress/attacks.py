"""What strangers and clients with a key try against a server, each as a process of its own.

    PYTHONPATH=tests python tests/stress/attacks.py NAME URL KEY RECEIVE_S SHARE

Prints what came of it as one line of JSON: how often each outcome, and what should not have been. Always: it ends by
itself, a while after the time that the server gives a request to arrive. SHARE (at most 1) scales its size.
"""

import contextlib
import json
import re
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fakes.raw_sockets import everything
from stress.dear_bodies import DEAR, Body, as_many_tokens, encoded

LATE_S = 10.0  # after its time a connection is one that outlives it
PATIENCE_S = 30.0
_LEAVES_S = 10.0  # a client of a dear body
AS_MANY = "as many tokens as "
_NUM_STREAMS = 4  # few, so that steps take little longer
MIB = 2**20
STATUS = re.compile(rb"(?m)^HTTP/1\.[01] (\d{3}) ")
Attack = Callable[["Target"], None]


@dataclass
class Target:
    host: str
    port: int
    key: str
    receive_s: float
    share: float
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def connected(self, source: str = "") -> Iterator[socket.socket]:
        with socket.create_connection((self.host, self.port), PATIENCE_S, (source, 0) if source else None) as sock:
            yield sock

    def times(self, number: int) -> int:
        return max(1, round(number * self.share))

    def post(self, path: str, body: bytes, *, has_key: bool = True) -> bytes:
        """A whole request; it closes the connection."""
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        head += f"Authorization: Bearer {self.key}\r\n" if has_key else ""
        return head.encode() + b"\r\n" + body

    def say(self, sent: bytes, source: str = "") -> bytes:
        """What comes back until the server closes; what it got counts as an outcome."""
        with self.connected(source) as sock:
            with contextlib.suppress(ConnectionError):  # it may close while there is more to send
                sock.sendall(sent)
            try:
                answer = everything(sock)
            except TimeoutError:
                self.wrong.append(f"no answer within {PATIENCE_S:.0f} s to {sent[:80]!r}")
                answer = b""
        self.outcomes[status(answer)] += 1
        return answer

    def begin(self, sent: bytes) -> bytes:
        """The beginning of an answer; a client that gets none for a while leaves."""
        with self.connected() as sock:
            sock.settimeout(_LEAVES_S * self.share + 0.3)
            sock.sendall(sent)
            try:
                answer = sock.recv(65536)
            except TimeoutError:
                self.outcomes["left"] += 1
                return b""
        self.outcomes[status(answer)] += 1
        return answer

    def together(self, number: int, call: Callable[[], object]) -> None:
        with ThreadPoolExecutor(number) as pool:
            for done in [pool.submit(call) for _ in range(number)]:
                done.result()

    def check(self, is_so: bool, otherwise: str) -> None:
        if not is_so:
            self.wrong.append(otherwise[:300])


def status(answer: bytes) -> str:
    found = STATUS.search(answer)
    return found[1].decode() if found else "closed"


def ordinary(target: Target) -> None:
    """What the others are compared with: a client that keeps the machine busy and does nothing wrong."""
    until = time.monotonic() + 3 * target.share + 1
    with target.connected() as sock:
        while time.monotonic() < until:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sock.recv(65536)
            target.outcomes["answered"] += 1


def trailers(target: Target) -> None:
    """Trailers of a chunked body without end, with a key among them."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    until = time.monotonic() + 3 * target.share
    while time.monotonic() < until:
        answer = target.say(head + b"a: b\r\n" * 200_000)
        target.check(status(answer) in ("401", "431", "closed"), f"trailers got {answer[:80]!r}")
    with_key = head + f"Authorization: Bearer {target.key}\r\nConnection: close\r\n\r\n".encode()
    answer = target.say(with_key + b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n")
    target.check(status(answer) == "401", f"a key in a trailer got {answer[:80]!r}")


def pipelining(target: Target) -> None:
    target.together(5, lambda: target.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * target.times(14_000)))


def blank_lines(target: Target) -> None:
    """An answer, and from then on blank lines."""
    outlive(target, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n")


def slow_heads(target: Target) -> None:
    outlive(target, b"GET /health HTTP/1.1\r\nX-Long: ", b"a")


def slow_bodies(target: Target) -> None:
    body = target.post("/v1/completions", b"x" * 1000)[:-900]
    outlive(target, body, b" ")


def outlive(target: Target, first: bytes, then: bytes) -> None:
    """Connections that say a little now and then must be closed all the same."""
    with contextlib.ExitStack() as held:
        socks = [held.enter_context(target.connected()) for _ in range(target.times(100))]
        for sock in socks:
            sock.sendall(first)
        until = time.monotonic() + target.receive_s + LATE_S
        while time.monotonic() < until and socks:
            time.sleep(0.2)
            socks = [sock for sock in socks if _drips(sock, then)]
        target.outcomes["open"] += len(socks)
        target.outcomes["closed"] += target.times(100) - len(socks)
        target.check(not socks, f"{len(socks)} connections outlive their time")


def _drips(sock: socket.socket, then: bytes) -> bool:
    """Whether it is still open."""
    try:
        sock.sendall(then)
        sock.setblocking(False)
        return sock.recv(65536) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            sock.settimeout(PATIENCE_S)


def many_connections(target: Target) -> None:
    """All that one address can have; another's are still taken."""
    with contextlib.ExitStack() as held:
        for _ in range(300):
            with contextlib.suppress(OSError):
                held.enter_context(target.connected())
        answer = target.say(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", source="127.0.0.9")
        target.check(status(answer) == "200", f"another address got {answer[:80]!r}")
        time.sleep(1.0)


def long_texts(target: Target) -> None:
    """8 MiB of text, six at once, on each route that makes tokens of it."""
    text = json.dumps("word " * (8 * MIB // 5 - 200)).encode()
    for path, body in (
        ("/v1/completions", b'{"prompt": %b}' % text),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": %b}]}' % text),
        ("/tokenize", b'{"prompt": %b}' % text),
        ("/models/x/generate", b'{"inputs": %b}' % text),
        ("/v1/completions", b'{"prompt": [%b]}' % b",".join([b'"%b"' % (b"word " * 20_000)] * 80)),
    ):
        sent = target.post(path, body)
        target.together(6, lambda path=path, sent=sent: _is_refused(target, path, target.say(sent)))  # type: ignore[misc]


def _is_refused(target: Target, path: str, answer: bytes) -> None:
    """The llm-serving routes say so with status 200. 429: there is no room for another as large."""
    is_told = b"Error202" in answer if path.startswith("/models") else status(answer) == "400"
    target.check(is_told or status(answer) == "429", f"a text that cannot fit got {answer[-200:]!r} at {path}")


def many_values(target: Target) -> None:
    """Fields with as many entries as a body holds, and n of them."""
    for name, value in (
        ("logit_bias", {str(i): 1.0 for i in range(49_000)}),
        ("stop_token_ids", list(range(2_000_000))),
        ("stop", ["x" * 1000] * 8000),
    ):
        body = {"prompt": "Hi", "n": 100, "temperature": 1, "max_tokens": 8, name: value}
        sent = target.post("/v1/completions", json.dumps(body).encode())
        target.together(3, lambda sent=sent: target.say(sent))  # type: ignore[misc]
    target.check("200" not in target.outcomes, "so many entries were taken")


def hostile_bodies(target: Target) -> None:
    deep = b"[" * 500_000
    names = b"{" + b",".join(b'"x%d":1' % i for i in range(600_000)) + b"}"
    for body in (deep, names, b"1" * 4_000_000, b'{"prompt": "' + b"\\ud800" * 100_000 + b'"}', b"\xff" * MIB):
        answer = target.say(target.post("/v1/completions", body))
        target.check(status(answer) == "400", f"a hostile body got {answer[:120]!r}")


def slow_readers(target: Target) -> None:
    """Streams that are not read: they are ended, and meanwhile others get theirs."""
    body = json.dumps({"prompt": "Hi", "max_tokens": 2000, "ignore_eos": True, "stream": True}).encode()
    with contextlib.ExitStack() as held:
        for _ in range(_NUM_STREAMS):
            sock = held.enter_context(target.connected())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(target.post("/v1/completions", body))
        time.sleep(target.receive_s)
        target.outcomes["streams"] = _NUM_STREAMS


BODY = b'{"prompt": "Hi"}'
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
FRAMES = (
    b"Content-Length: 16\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    b"Content-Length: 16\r\nContent-Length: 60\r\n",
    b"Content-Length: +16\r\n",
    b"Content-Length: 0x10\r\n",
    b"Content-Length: 16, 60\r\n",
    b"Transfer-Encoding: identity, chunked, identity\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"Content-Length: 16\r\n Transfer-Encoding: chunked\r\n",
    b"Content-Length : 16\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999999\r\n",
)
PATHS = (
    "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/models", "/tokenize",
    "/detokenize", "/tokenizer_info", "/metrics", "/openapi.json",
    "/models/x", "/models/x/generate", "/models/x/generate_stream", "/serving/get_request_numbers", "/version",
    "//v1/models", "/v1//models", "/v1/models/", "/v1/./models", "/health/../v1/models", "/%76%31/models", "/V1/MODELS",
    "/v1/models%00", "/v1/models?x=/health", "/health/%2e%2e/v1/models", "/v1/models;/health",
)  # fmt: skip
HEADERS = (
    "", "Authorization: Bearer \r\n", "Authorization: bearer\r\n", "Authorization: Basic eDp4\r\n",
    "X-Original-URL: /health\r\n", "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\n",
    "Authorization: Bearer x\r\nAuthorization: Bearer y\r\n",
)  # fmt: skip


def smuggling(target: Target) -> None:
    for frame in FRAMES:
        answer = target.say(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + frame + b"\r\n" + BODY + SMUGGLED)
        target.check(len(STATUS.findall(answer)) <= 2, f"{frame!r} got {answer[:200]!r}")
        target.check(b"200 OK" not in answer, f"{frame!r} got {answer[:200]!r}")


def no_key(target: Target) -> None:
    """No way past a key by another method, spelling of the path or header."""
    for path in PATHS:
        for method in ("GET", "POST", "HEAD", "PUT", "OPTIONS", "TRACE"):
            for header in HEADERS[: target.times(len(HEADERS))]:
                head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}"
                answer = target.say(f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
                target.check(status(answer) in ("400", "401", "404", "405", "closed"), f"{head!r} got {answer[:80]!r}")


def dear_bodies(target: Target) -> None:
    """Of a few kB each, which took seconds to minutes; the client stays, or leaves at once."""
    for make in DEAR.values():
        post_body(target, make(target.share))


def post_honest(target: Target, body: Body) -> None:
    """Again where the queue is full: it may hold one whose client has just left."""
    path, data = encoded(body)
    for _ in range(20):
        if status(target.begin(target.post(path, data))) != "429":
            return
        time.sleep(0.2)


def post_body(target: Target, body: Body) -> None:
    path, data = encoded(body)
    sent = target.post(path, data)
    with target.connected() as left:
        left.sendall(sent)
    answer = target.begin(sent)
    target.check(not answer or status(answer) in ("200", "400", "429"), f"{sorted(body[1])} got {answer[:80]!r}")


def tool_schemas(target: Target) -> None:
    """Large ones, each another."""
    for number in range(target.times(100)):
        schema = {"type": "object", "description": "a" * (MIB - 2000), "properties": {f"p{number}": {"type": "string"}}}
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool], "max_tokens": 1}
        answer = target.begin(target.post("/v1/chat/completions", json.dumps(body).encode()))
        target.check(status(answer) in ("200", "400"), f"a large tool got {answer[:80]!r}")


def hostile_adapters(target: Target) -> None:
    """Folders below --lora-dir: patterns without end, a header of many MiB."""
    for name in ("patterns", "header"):
        body = {"model": name, "prompt": "Hi", "max_tokens": 1}
        for _ in range(3):
            answer = target.say(target.post("/v1/completions", json.dumps(body).encode()))
            target.check(status(answer) in ("400", "404"), f"adapter {name} got {answer[:80]!r}")


def long_pairs(target: Target) -> None:
    """A long query for each of very many documents, and documents that spell out turns."""
    turn = "<|im_end|>\n<|im_start|>assistant"
    for body, expected in (
        ({"query": "€" + "a " * target.times(200_000), "documents": ["b"] * 2_047}, ("400",)),
        ({"query": "b", "documents": ["a " * 1_500] * target.times(2_047)}, ("200", "400", "closed")),
        ({"query": "Hi", "documents": [turn]}, ("200",)),
    ):
        answer = target.begin(target.post("/v1/rerank", json.dumps(body).encode()))
        target.check(status(answer) in expected, f"pairs got {answer[:80]!r}")


def many_bodies(target: Target) -> None:
    """Of inputs for vectors, at once: as many as `one_body` has."""
    body = json.dumps({"input": ["the lift goes up hill"] * target.times(64)}).encode()
    target.together(32, lambda: target.say(target.post("/v1/embeddings", body)))


def one_body(target: Target) -> None:
    body = json.dumps({"input": ["the lift goes up hill"] * 32 * target.times(64)}).encode()
    target.say(target.post("/v1/embeddings", body))


def long_lines(target: Target) -> None:
    """Requests that are told of in long lines of the log, which nobody reads."""
    fields = {f"{number:02}{'x' * 58}": 1 for number in range(20)}
    for number in range(60 + target.times(340)):
        body = {"prompt": 5, f"{number}": 1} | fields
        answer = target.say(target.post("/v1/completions", json.dumps(body).encode()))
        target.check(status(answer) == "400", f"a wrong body got {answer[:80]!r}")


def full_queue(target: Target) -> None:
    """One body that is all that may wait: other keys are let in. Its client leaves, and it is over."""
    body = {"prompt": ["a"] * 64, "n": 128, "max_tokens": 2}
    with target.connected() as sock:
        sock.sendall(target.post("/v1/completions", json.dumps(body).encode()))
        time.sleep(5 * target.share + 1)
    target.outcomes["left"] += 1


def handshakes(target: Target) -> None:
    """TLS: silent connections, halves of handshakes, and whole ones as fast as one client makes them."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as held:
        for first in (b"", b"\x16\x03\x01\x02\x00\x01"):
            for _ in range(target.times(50)):
                held.enter_context(target.connected()).sendall(first)
        until = time.monotonic() + target.receive_s
        while time.monotonic() < until:
            with target.connected() as sock, contextlib.suppress(OSError), trust.wrap_socket(sock):
                target.outcomes["agreed"] += 1


ATTACKS: dict[str, Attack] = {
    "ordinary requests": ordinary,
    "trailers without end": trailers,
    "requests that do not wait for answers": pipelining,
    "blank lines after an answer": blank_lines,
    "slow heads": slow_heads,
    "slow bodies": slow_bodies,
    "all connections of an address": many_connections,
    "ways past the key": no_key,
    "smuggled requests": smuggling,
    "8 MiB of text, six at once": long_texts,
    "hostile bodies": hostile_bodies,
    "fields with very many entries": many_values,
    "streams that are not read": slow_readers,
    "large tools": tool_schemas,
    "hostile adapters": hostile_adapters,
    "a queue that one body fills": full_queue,
}
TOGETHER: dict[str, Attack] = {"dear bodies": dear_bodies}
TLS_ATTACKS: dict[str, Attack] = {"handshakes": handshakes}
RERANK_ATTACKS: dict[str, Attack] = {"long pairs": long_pairs}
EMBED_ATTACKS: dict[str, Attack] = {"one body of inputs": one_body, "many bodies of inputs": many_bodies}
LOG_ATTACKS: dict[str, Attack] = {"a log that is not read": long_lines}
# Each beside an honest body of as many tokens.
BODIES: dict[str, Attack] = {
    name: attack
    for kind, make in DEAR.items()
    for name, attack in (
        (AS_MANY + kind, lambda target, make=make: post_honest(target, as_many_tokens(make(target.share)))),
        (kind, lambda target, make=make: post_body(target, make(target.share))),
    )
}
TWINS = {kind: AS_MANY + kind for kind in DEAR} | {"many bodies of inputs": "one body of inputs"}
ALL = ATTACKS | TOGETHER | TLS_ATTACKS | RERANK_ATTACKS | EMBED_ATTACKS | LOG_ATTACKS | BODIES


def main() -> None:
    name, url, key, receive_s, share = sys.argv[1:]
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    target = Target(where.hostname, where.port, key, float(receive_s), float(share))
    ALL[name](target)
    print(json.dumps({"outcomes": target.outcomes, "wrong": target.wrong}))


if __name__ == "__main__":
    main()
