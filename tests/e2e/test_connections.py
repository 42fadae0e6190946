"""What connections may do, over raw sockets."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chairlift.live.shared_memory.counts import Count
from chairlift.server.sockets.guard import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED
from fakes.http_world import HttpWorld
from fakes.patience import HANG_S, wait_until
from fakes.raw_sockets import everything

ASK = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
STREAM = b'{"prompt": "Hi", "stream": true, "max_tokens": 390}'


@contextmanager
def connected(url: str, room: int | None = None, source: str = "") -> Iterator[socket.socket]:
    """`room`: bytes that the machine keeps for a client that does not read; `source`: an address of its own."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as sock:
        if room is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        sock.settimeout(HANG_S)
        if source:
            sock.bind((source, 0))
        sock.connect((host, int(port)))
        yield sock


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_a_head_without_end_is_431_whether_in_one_header_or_in_many_pieces() -> None:
    with HttpWorld().on_a_port() as url:
        with connected(url) as sock:
            sock.sendall(ASK + b"X-Long: " + b"a" * (MAX_HEAD_BYTES + 1) + b"\r\n\r\n")
            answer = everything(sock)
        assert status(answer) == 431
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "431"
        with connected(url) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(ASK)
            for _ in range(MAX_HEAD_BYTES):  # it would go on for ever
                sock.sendall(b"X-More: " + b"a" * 1000 + b"\r\n")
        with connected(url) as sock:
            sock.sendall(b"GET /" + b"a" * (MAX_HEAD_BYTES + 1) + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status(everything(sock)) == 431


def test_too_many_headers_are_431_and_as_many_as_allowed_are_fine() -> None:
    with HttpWorld().on_a_port() as url:
        for num, wanted in ((MAX_HEADERS - 2, 200), (MAX_HEADERS + 1, 431)):
            with connected(url) as sock:
                sock.sendall(
                    b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + b"X-A: b\r\n" * num + b"\r\n"
                )
                assert status(everything(sock)) == wanted


CHUNKED = ASK + b"Transfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"2\r\n{}\r\n0\r\n"


@pytest.mark.parametrize("trailer", [b"a: b\r\n", b"a" * 1000], ids=["many", "one without end"])
def test_trailers_without_end_are_431(trailer: bytes) -> None:
    with HttpWorld().on_a_port() as url, connected(url) as sock:
        sock.sendall(CHUNKED + LAST_CHUNK)
        with contextlib.suppress(ConnectionError):
            for _ in range(MAX_HEAD_BYTES):  # it would go on for ever
                sock.sendall(trailer * 10)
        assert status(everything(sock)) in (400, 431)  # the body was read and answered, or not yet


def test_a_key_in_a_trailer_opens_nothing_and_a_trailer_does_no_harm() -> None:
    body = b'{"prompt": "Hi", "max_tokens": 2}'
    chunks = b"%x\r\n%b\r\n0\r\nAuthorization: Bearer secret-of-some-length\r\n\r\n" % (len(body), body)
    for settings, wanted in (({"api_key": "secret-of-some-length"}, 401), ({}, 200)):
        with HttpWorld(**settings).on_a_port() as url, connected(url) as sock:
            sock.sendall(ASK + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
            assert status(everything(sock)) == wanted


def test_a_trailer_that_says_close_ends_the_connection_after_the_answer() -> None:
    body = b'{"prompt": "Hi", "max_tokens": 2}'
    chunks = b"%x\r\n%b\r\n0\r\nConnection: close\r\n\r\n" % (len(body), body)
    for settings, wanted in (
        ({"api_key": "secret-of-some-length"}, 401),
        ({}, 200),
    ):  # before the body is read, and after
        with HttpWorld(**settings).on_a_port() as url, connected(url) as sock:
            sock.sendall(ASK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"GET / HTTP/1.1\r\n\r\n")
            answer = everything(sock)
        assert status(answer) == wanted
        assert answer.count(b"HTTP/1.1 ") == 1


def test_a_chunk_with_an_endless_extension_is_431() -> None:
    with HttpWorld().on_a_port() as url, connected(url) as sock:
        sock.sendall(CHUNKED + b"5;a=")
        with contextlib.suppress(ConnectionError):
            for _ in range(MAX_HEAD_BYTES):
                sock.sendall(b"a" * 1000)
        assert status(everything(sock)) == 431


def test_requests_that_do_not_wait_for_answers_are_few(stalled_world: HttpWorld) -> None:
    with stalled_world.on_a_port() as url:
        with connected(url) as sock:
            sock.sendall(asking(stream=False) * MAX_PIPELINED)
            wait_until(lambda: len(stalled_world.client.requests) == 1)
            sock.sendall(asking(stream=False))  # one too many
            answer = everything(sock)
        assert status(answer) == 400
        assert b"without an answer" in answer
        with connected(url) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 14_000)
            assert b"without an answer" in everything(sock)


def test_blank_lines_after_an_answer_do_not_keep_a_connection_open() -> None:
    with HttpWorld(max_receive_seconds=0.4).on_a_port() as url, connected(url) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(sock.recv(65536)) == 200
        sock.sendall(b"\r\n")
        assert status(everything(sock)) == 408


def test_a_large_body_and_the_beginning_of_the_next_head_in_one_read_are_both_taken() -> None:
    body = json.dumps({"prompt": "Hi", "max_tokens": 2, "metadata": {"a": "u" * 70_000}}).encode()
    first = ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with HttpWorld(max_body_bytes=100_000).on_a_port() as url, connected(url) as sock:
        sock.sendall(first + b"GET /health HT")
        sock.sendall(b"TP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert everything(sock).count(b"HTTP/1.1 200") == 2


def test_a_request_to_upgrade_is_answered_in_http() -> None:
    body = b'{"prompt": "Hi", "max_tokens": 2}'
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    request = ASK + upgrade + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with HttpWorld().on_a_port() as url, connected(url) as sock:
        sock.sendall(request[:-10])
        sock.sendall(request[-10:] + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert everything(sock).count(b"HTTP/1.1 200") == 2
    with HttpWorld().on_a_port() as url, connected(url) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert status(everything(sock)) == 200  # and closed, as it asked


@pytest.fixture
def stalled_world(caplog: pytest.LogCaptureFixture) -> Iterator[HttpWorld]:
    """Its answers never end; its own failures are no errors of the server."""
    world = HttpWorld("Hello world " * 60)
    world.client.stalls_at = 3
    yield world
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def asking(stream: bool) -> bytes:
    body = json.dumps({"prompt": "Hi", "max_tokens": 100, "stream": stream}).encode()
    return ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("stream", [False, True])
def test_garbage_behind_a_request_ends_both_without_a_word_in_the_log(stalled_world: HttpWorld, stream: bool) -> None:
    requests = stalled_world.client.requests
    with stalled_world.on_a_port() as url:
        with connected(url) as sock:
            sock.sendall(asking(stream))
            wait_until(lambda: len(requests) == 1)
            if stream:
                sock.recv(1)
            sock.sendall(b"\0 garbage\r\n\r\n")
            answer = everything(sock)
        wait_until(lambda: requests[0].aborts == [None])
    if not stream:
        assert status(answer) == 400
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"] == "this is not HTTP"
    assert b"[DONE]" not in answer


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_sent_two_requests_and_leaves_is_not_worked_for(stalled_world: HttpWorld, stream: bool) -> None:
    requests = stalled_world.client.requests
    with stalled_world.on_a_port() as url:
        with connected(url) as sock:
            sock.sendall(2 * asking(stream))
            wait_until(lambda: len(requests) == 1)
        wait_until(lambda: requests[0].aborts == [None])
    assert len(requests) == 1


def test_a_chunked_body_is_limited_as_it_comes() -> None:
    world = HttpWorld(max_body_bytes=1000, max_receive_seconds=1.0)
    with world.on_a_port() as url, connected(url) as sock:
        sock.sendall(ASK + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            sock.sendall(b"400\r\n" + b" " * 0x400 + b"\r\n")
        assert status(sock.recv(65536)) == 413
        assert not world.client.requests


def test_a_connection_too_many_is_told_so_and_one_that_ends_makes_room() -> None:
    world = HttpWorld(max_connections=2, max_connections_per_address=2)
    refused = list[str]()
    world.context.load.on_refused = refused.append
    with world.on_a_port() as url:
        with connected(url) as sock:  # once it is answered, earlier connections have been accepted
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            everything(sock)
        wait_until(lambda: world.context.load.counts.total(Count.CONNECTIONS) == 0)
        with connected(url), connected(url):
            with connected(url) as third:
                answer = everything(third)
            assert status(answer) == 503
            assert b"retry-after: 1" in answer.lower()
            assert b"connection: close" in answer.lower()
        assert refused == ["503"]
        wait_until(lambda: world.context.load.counts.total(Count.CONNECTIONS) == 0)
        with connected(url) as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert status(everything(sock)) == 200


def test_one_address_keeps_no_other_out() -> None:
    world = HttpWorld(max_connections=8)  # half of them by one
    with world.on_a_port() as url, contextlib.ExitStack() as held:
        for _ in range(4):
            held.enter_context(connected(url))
        with connected(url) as fifth:
            answer = everything(fifth)
        assert status(answer) == 429
        assert b"4 connections from 127.0.0.1 already (--max-connections-per-address)" in answer
        with connected(url, source="127.0.0.2") as other:
            other.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert status(everything(other)) == 200
        held.close()
        wait_until(lambda: world.context.load.counts.total(Count.CONNECTIONS) == 0)
        with connected(url) as again:
            again.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert status(everything(again)) == 200


@pytest.mark.parametrize(
    "sent", [ASK, ASK[:20], ASK + b"Content-Length: 100\r\n\r\n{", ASK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"]
)
def test_a_request_that_does_not_arrive_in_full_ends_with_408(sent: bytes) -> None:
    world = HttpWorld(max_receive_seconds=0.4)
    with world.on_a_port() as url, connected(url) as sock:
        sock.sendall(sent)
        before = time.monotonic()
        assert status(everything(sock)) == 408
        assert time.monotonic() - before > 0.3


def test_a_drop_of_a_request_every_now_and_then_does_not_keep_a_connection_open() -> None:
    def drip(sock: socket.socket) -> None:
        for byte in ASK + b"A" * 1000:  # for a minute, if it were let
            sock.sendall(bytes([byte]))
            time.sleep(0.05)

    with HttpWorld(max_receive_seconds=0.5).on_a_port() as url, connected(url) as sock, pytest.raises(ConnectionError):
        drip(sock)


def test_a_connection_on_which_nothing_is_asked_is_closed() -> None:
    with HttpWorld(max_receive_seconds=0.3).on_a_port() as url, connected(url) as sock:
        everything(sock)


def test_a_long_answer_is_not_taken_for_a_slow_request() -> None:
    world = HttpWorld("Hello world " * 60, max_receive_seconds=1.0)
    world.client.delay_s = 0.005
    with world.on_a_port() as url, connected(url) as sock:
        sock.sendall(ASK + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(STREAM) + STREAM)
        assert b"[DONE]" in everything(sock)


def test_a_client_that_reads_nothing_is_cut_off_and_its_request_freed() -> None:
    world = HttpWorld("Hello world " * 100, slow_reader_seconds=0.5)
    load, refused = world.context.load, list[str]()
    load.on_refused = refused.append
    world.client.script = lambda prompt, sample: world.answer[:-1] * 400
    with world.on_a_port(room=4096) as url, connected(url, room=4096) as sock:
        body = b'{"prompt": "Hi", "stream": true, "max_tokens": 390, "ignore_eos": true, "n": 8, "logprobs": 5}'
        sock.sendall(ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        sock.recv(100)
        wait_until(lambda: refused == ["slow_reader"])
        wait_until(lambda: load.counts.total(Count.OPEN) == 0)
        wait_until(lambda: load.counts.total(Count.CONNECTIONS) == 0)


def test_a_client_that_reads_slowly_but_steadily_gets_everything() -> None:
    seconds = 3.0
    world = HttpWorld("Hello world " * 100, slow_reader_seconds=seconds)
    refused = list[str]()
    world.context.load.on_refused = refused.append
    with world.on_a_port(room=32768) as url, connected(url, room=32768) as sock:
        body = b'{"prompt": "Hi", "stream": true, "max_tokens": 250, "ignore_eos": true, "n": 4, "logprobs": 5}'
        sock.sendall(ASK + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        end, before = b"", time.monotonic()
        while part := sock.recv(8192):
            end = (end + part)[-200:]
            time.sleep(0.1)
        assert time.monotonic() - before > seconds
        assert b"[DONE]" in end
        assert refused == []
