"""What connections may do before there are keys, over raw sockets."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator

import httpx
import pytest

from chairlift.live.shared_memory.counts import Count
from fakes.certificate import Certificate, make_certificate, needs_openssl
from fakes.http_world import HttpWorld
from fakes.patience import HANG_S, wait_until

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


class Site:
    def __init__(self, certificate: Certificate, **settings: object) -> None:
        self.world = HttpWorld(tls_cert=certificate.cert, tls_key=certificate.key, **settings)
        self.refused: list[str] = []
        self.world.context.load.on_refused = self.refused.append
        self._trust = ssl.create_default_context(cafile=certificate.cert)

    @property
    def num_connections(self) -> int:
        return self.world.context.load.counts.total(Count.CONNECTIONS)

    @contextlib.contextmanager
    def on_a_port(self) -> Iterator[str]:
        with self.world.on_a_port() as url:
            wait_until(lambda: self.refused == ["handshake"])  # of the probe
            self.refused.clear()
            yield url

    def ask(self, url: str) -> int:
        return httpx.get(f"{url}/health", verify=self._trust, timeout=HANG_S).status_code


def silent(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=HANG_S)


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_request_over_tls_is_answered_and_counts_as_one_connection(certificate: Certificate) -> None:
    site = Site(certificate, max_connections=1)
    with site.on_a_port() as url:
        for _ in range(3):
            assert site.ask(url) == 200
            wait_until(lambda: site.num_connections == 0)
    assert site.refused == []


def test_a_silent_connection_counts_and_one_too_many_is_closed_at_once(certificate: Certificate) -> None:
    site = Site(certificate, max_connections=2, max_connections_per_address=2)
    with site.on_a_port() as url:
        with silent(url), silent(url):
            wait_until(lambda: site.num_connections == 2)
            with silent(url) as third:
                assert is_closed(third)
            with pytest.raises(httpx.TransportError):
                site.ask(url)
            assert site.num_connections == 2
            assert site.refused == ["503", "503"]
        wait_until(lambda: site.num_connections == 0)
        assert site.ask(url) == 200


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_a_handshake_that_does_not_come_to_its_end_is_closed(certificate: Certificate, sent: bytes) -> None:
    site = Site(certificate, max_receive_seconds=0.4)
    with site.on_a_port() as url, silent(url) as sock:
        sock.sendall(sent)
        before = time.monotonic()
        assert is_closed(sock)
        assert time.monotonic() - before > 0.3
        wait_until(lambda: site.num_connections == 0)
        assert site.refused == ["handshake"]
        assert site.ask(url) == 200


def test_what_is_no_tls_is_closed_without_a_word_in_the_log(
    certificate: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(certificate)
    with site.on_a_port() as url, silent(url) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(100):  # TLS has a word for it
                pass
        wait_until(lambda: site.num_connections == 0)
        assert site.refused == ["handshake"]
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


def test_a_request_that_comes_with_the_last_of_the_handshake_is_heard(certificate: Certificate) -> None:
    """The client sends both in one packet, so that they are read in one go."""
    site = Site(certificate)
    trust = ssl.create_default_context(cafile=certificate.cert)
    with site.on_a_port() as url, silent(url) as sock:
        heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trust.wrap_bio(heard, said, server_hostname="127.0.0.1")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(said.read())
                heard.write(sock.recv(65536))
        tls.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        sock.sendall(said.read())
        answer = b""
        while b"200 OK" not in answer:
            heard.write(sock.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer += tls.read(65536)


def test_a_server_stops_during_an_unfinished_handshake(certificate: Certificate) -> None:
    site = Site(certificate, max_receive_seconds=2 * HANG_S)
    with contextlib.ExitStack() as stack, site.on_a_port() as url:
        stack.enter_context(silent(url))
        wait_until(lambda: site.num_connections == 1)
