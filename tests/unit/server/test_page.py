import asyncio
import base64
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from chairlift.live.shared_memory.counts import Count
from chairlift.live.wire.messages import Explain, Explained, Snapshot, Watch
from chairlift.server.page import document
from fakes.connection import MemoryConnection
from fakes.http_world import HttpWorld
from fakes.patience import HANG_S, until, wait_until

WHOLE, NEWS = Snapshot(True, b'{"whole":1}'), Snapshot(False, b'{"news":1}')


PAGES = pytest.mark.parametrize("path", ["/", "/docs"])


async def browser_gets(world: HttpWorld, path: str = "/") -> httpx.Response:
    async with world.http() as http:
        return await http.get(path, headers={"Accept": "text/html,application/xhtml+xml"})


def inside(tag: str, html: str) -> list[str]:
    return re.findall(f"<{tag}>(.*?)</{tag}>", html, flags=re.S)


async def test_a_browser_gets_the_page_and_others_a_welcome() -> None:
    world = HttpWorld()
    page = await browser_gets(world)
    assert page.headers["content-type"].startswith("text/html")
    assert page.text.startswith("<!doctype html>")
    assert (await world.get("/")).json()["models"] == ["small", "org/small"]


@PAGES
async def test_a_page_is_the_same_for_all_and_needs_nothing_from_elsewhere(path: str) -> None:
    other = HttpWorld("Other words.", model="other")
    page, again = await browser_gets(HttpWorld(), path), await browser_gets(other, path)
    assert page.content == again.content
    html = re.sub(r"<script>.*?</script>", "", page.text, flags=re.S)
    links = set(re.findall(r"(?:src|href)=\"([^\"]*)\"", html))
    assert all(link.startswith(("#", "data:", "/")) for link in links)
    for link in links:
        if link.startswith("/") and link != "/metrics":  # of which this server has none
            assert (await other.get(link.partition("#")[0])).status_code == 200


@PAGES
async def test_only_a_pages_own_scripts_and_style_may_run(path: str) -> None:
    page = await browser_gets(HttpWorld(), path)
    rules = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    for tag in ("script", "style"):
        digests = [base64.b64encode(sha256(each.encode()).digest()).decode() for each in inside(tag, page.text)]
        assert rules[f"{tag}-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert rules["default-src"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert rules["trusted-types"] == ("dompurify" if path == "/" else "'none'")
    assert not re.search(r" (?:style|on\w+)=", re.sub(r"<script>.*?</script>", "", page.text, flags=re.S))


@PAGES
async def test_no_script_of_ours_makes_markup_of_text(path: str) -> None:
    own = inside("script", (await browser_gets(HttpWorld(), path)).text)[-1]
    assert "textContent" in own
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b", own)


def test_vendored_scripts_are_those_that_are_named() -> None:
    folder = Path(document.__file__).parent / "static" / "vendor"
    named = dict(line.split()[::-1] for line in (folder / "README.md").read_text().splitlines() if line[:4] == "    ")
    assert named == {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.js")}
    assert {path.stem for path in folder.glob("*.LICENSE")} == {path.stem for path in folder.glob("*.js")}


async def test_pages_hold_no_data_and_need_no_key() -> None:
    world = HttpWorld(api_key="sk-alice-0123456789")
    for path in ("/", "/docs"):
        assert (await browser_gets(world, path)).status_code == 200
    assert (await browser_gets(world, "/openapi.json")).status_code == 401


class OpenPage:
    """A page that is being read."""

    def __init__(self, world: HttpWorld) -> None:
        self.connection = MemoryConnection()
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/live",
            "headers": [],
            "query_string": b"",
            "extensions": {"chairlift.connection": self.connection},
        }
        self.sent: list[Any] = []
        self.task = asyncio.ensure_future(world.app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def events(self) -> list[tuple[str, Any]]:
        blocks = [block.split("\n") for block in self.connection.data.decode().split("\n\n") if block]
        return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    async def leave(self) -> None:
        assert self.connection.sender is not None
        self.connection.sender.leave()
        await asyncio.wait([self.task])


@asynccontextmanager
async def opened(world: HttpWorld) -> AsyncIterator[OpenPage]:
    page = OpenPage(world)
    await until(lambda: bool(page.connection.data))
    yield page
    if not page.task.done():
        await page.leave()


async def test_a_page_is_told_of_the_server_then_of_everything_then_of_news() -> None:
    world = HttpWorld(policy="shortest-first", max_running=8)
    async with opened(world) as page:
        world.client.watching.hear(NEWS)  # was on its way before the page came
        world.client.watching.hear(WHOLE)
        world.client.watching.hear(NEWS)
        world.client.watching.hear(WHOLE)  # for another page
    assert page.names == ["about", "about", "totals", "whole", "totals", "news"]
    about = page.events[0][1]
    assert (about["version"], about["models"], about["has_chat"]) == ("1.2.3", ["small", "org/small"], True)
    assert about["limits"]["num_blocks"] == 100
    assert about["rules"][0]["value"] == "shortest-first"
    assert about["rules"][0]["summary"]
    settings = {name: (value, is_default) for name, value, is_default, *_ in about["settings"]}
    assert settings["policy"] == ("shortest-first", False)


async def test_settings_are_shown_as_they_are_in_force() -> None:
    world = HttpWorld(max_step_tokens=100, max_request_seconds=7.0, max_connections=10)
    settings = await shown_settings(world)
    assert settings["max_step_tokens"] == "64", "the engine took less than was asked for"
    assert (settings["device"], settings["threads"], settings["kernels"]) == ("cpu", "2", "native")
    assert (settings["task"], settings["frontends"]) == ("generate", "1")
    assert settings["served_model_name"] == "small, org/small"
    assert (settings["max_connections_per_address"], settings["max_body_bytes"]) == ("5", "20000")
    assert (settings["max_request_seconds"], settings["drain_timeout"]) == ("7.0", "no limit")
    assert settings["lora_memory"] == "4GiB"
    world.context.load.settings = replace(world.context.settings, max_request_seconds=None)
    assert (await shown_settings(world))["max_request_seconds"] == "no limit"


async def shown_settings(world: HttpWorld) -> dict[str, str]:
    async with opened(world) as page:
        return {name: value for name, value, *_ in page.events[0][1]["settings"]}


async def test_a_page_is_told_how_requests_ended() -> None:
    world = HttpWorld(max_waiting=1)
    question = {"prompt": "a", "max_tokens": 2}
    assert (await world.post("/v1/completions", question)).status_code == 200
    assert (await world.post("/v1/completions", {"prompt": 7})).status_code == 400
    world.context.load.counts.add(Count.WAITING, 1)
    assert (await world.post("/v1/completions", question)).status_code == 429
    await world.get("/v1/models")
    async with opened(world) as page:
        world.client.watching.hear(WHOLE)
    (totals,) = [data for name, data in page.events if name == "totals"]
    assert totals == {"answered": 1, "failed": 0, "aborted": 0, "overloaded": 1, "rejected": 1}


async def test_a_password_in_an_address_is_not_shown() -> None:
    endpoint = "http://alice:secret@collector:4318/v1/traces?token=secret"
    async with opened(HttpWorld(otlp_endpoint=endpoint)) as page:
        settings = {name: value for name, value, *_ in page.events[0][1]["settings"]}
    assert settings["otlp_endpoint"] == "http://***@collector:4318/v1/traces?***"


async def test_a_page_that_leaves_while_its_start_is_sent_is_forgotten() -> None:
    world = HttpWorld()

    class Leaving(OpenPage):
        async def _send(self, message: Any) -> None:
            await super()._send(message)
            self.connection.is_gone = True
            if self.connection.sender is not None:
                self.connection.sender.leave()

    page = Leaving(world)
    await asyncio.wait([page.task], timeout=HANG_S)
    assert page.task.done() and not page.connection.data
    assert world.client.watched == []


async def test_the_engine_is_watched_while_a_page_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chairlift.live.wire.watch_client.LOOK_PAUSE_S", 0.05)
    world = HttpWorld()
    async with opened(world) as first:
        async with opened(world) as second:
            await until(lambda: world.client.watched == [Watch(True), Watch(True)])
            world.client.watching.hear(WHOLE)
            assert first.names[-1] == second.names[-1] == "whole"
        assert world.client.watched[-1] == Watch(True)
        world.client.watching.hear(NEWS)
        assert first.names[-1] == "news"
    assert world.client.watched[-1] == Watch(False)


async def test_pages_that_come_and_go_ask_the_engine_for_everything_seldom() -> None:
    world = HttpWorld()
    for _ in range(20):
        async with opened(world):
            pass
    assert world.client.watched.count(Watch(True)) == 1
    assert world.client.watched[-1] == Watch(False)


async def test_head_of_a_feed_has_no_body() -> None:
    world = HttpWorld()
    async with world.http() as http:
        head = await http.head("/live")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")
    assert world.client.watched == []


async def test_a_page_that_reads_slowly_is_told_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chairlift.live.wire.watch_client.LOOK_PAUSE_S", 0.05)
    world = HttpWorld()
    async with opened(world) as page:
        world.client.watching.hear(WHOLE)
        page.connection.is_full = True
        world.client.watching.hear(NEWS)
        page.connection.is_full = False
        world.client.watching.hear(NEWS)
        assert page.names == ["about", "about", "totals", "whole"]
        asked = len(world.client.watched)
        assert page.connection.sender is not None
        page.connection.sender.release()
        await until(lambda: world.client.watched[asked:] == [Watch(True)])
        world.client.watching.hear(WHOLE)
        assert page.names[-1] == "whole"


async def test_a_page_outlives_the_engine() -> None:
    world = HttpWorld()
    async with opened(world) as page:
        world.client.watching.hear(WHOLE)
        world.client.watching.lose()
        assert page.names[-1] == "away"
        world.client.watching.resume()
        assert world.client.watched[-1] == Watch(True)
        world.client.watching.hear(WHOLE)
        assert page.names[-1] == "whole"


async def test_a_request_is_explained_by_the_engine() -> None:
    world = HttpWorld()
    answer = asyncio.ensure_future(world.get("/live/requests/7"))
    await until(lambda: world.client.watched == [Explain(7)])
    world.client.watching.hear(Explained(7, b'{"headline":[]}'))
    assert (await answer).json() == {"headline": []}


@pytest.mark.parametrize(("user", "shown"), [("key-1", "key-1"), ("key-2", "")])
async def test_a_key_is_told_its_own_name_and_no_other(user: str, shown: str) -> None:
    world = HttpWorld(api_key="sk-alice-0123456789,sk-bob-0123456789abc")
    async with world.http() as http:
        alice = {"X-API-Key": "sk-alice-0123456789"}
        answer = asyncio.ensure_future(http.get("/live/requests/7", headers=alice))
        await until(lambda: world.client.watched == [Explain(7)])
        world.client.watching.hear(Explained(7, json.dumps({"user": user, "headline": ["words"]}).encode()))
        assert (await answer).json() == {"user": shown, "headline": ["words"]}


async def test_questions_are_put_to_the_engine_one_at_a_time() -> None:
    world = HttpWorld()
    answers = [asyncio.ensure_future(world.get(f"/live/requests/{number}")) for number in (1, 2)]
    await until(lambda: bool(world.client.watched))
    await asyncio.sleep(0.05)
    assert world.client.watched == [Explain(1)]
    world.client.watching.hear(Explained(1, b"{}"))
    await until(lambda: len(world.client.watched) == 2)
    world.client.watching.hear(Explained(2, b"{}"))
    assert [answer.status_code for answer in await asyncio.gather(*answers)] == [200, 200]


def test_a_query_from_a_client_that_left_delays_no_other() -> None:
    world = HttpWorld()
    with world.on_a_port() as url:
        for number in range(1, 4):  # of the first the engine says nothing, the others wait for it
            with asking(url, number):
                time.sleep(0.1)
        with asking(url, 9):
            wait_until(lambda: world.client.watched[-1:] == [Explain(9)])


def asking(url: str, number: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
    sock.sendall(b"GET /live/requests/%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
    return sock


@pytest.mark.parametrize("name", ["7", "x", "²", "9" * 40])
async def test_an_unknown_request_is_not_found(name: str) -> None:
    world = HttpWorld()
    answer = asyncio.ensure_future(world.get(f"/live/requests/{name}"))
    if name == "7":
        await until(lambda: bool(world.client.watched))
        world.client.watching.hear(Explained(7, None))
    assert (await answer).status_code == 404
    assert len(world.client.watched) == (name == "7")


async def test_without_an_engine_nothing_is_explained() -> None:
    world = HttpWorld()
    world.client.is_ready = False
    assert (await world.get("/live/requests/7")).status_code == 404


def test_a_real_connection_is_followed_and_let_go() -> None:
    world = HttpWorld()
    with world.on_a_port() as url:
        with httpx.Client(timeout=HANG_S) as http, http.stream("GET", url + "/live") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: about"
            assert world.client.watched == [Watch(True)]
        wait_until(lambda: world.client.watched[-1] == Watch(False))


@pytest.mark.parametrize("reads", [True, False])
async def test_pages_end_when_the_server_begins_to_stop_and_no_more_are_let_in(reads: bool) -> None:
    world = HttpWorld()
    async with opened(world) as page:
        page.connection.has_unsent = not reads
        world.context.load.drain()
        await asyncio.wait([page.task], timeout=HANG_S)
        assert page.task.done()
        assert (page.sent[-1].get("more_body") is False) == reads
    assert world.client.watched[-1] == Watch(False)
    assert (await world.get("/live")).status_code == 503


def test_a_page_that_reads_nothing_does_not_hold_up_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chairlift.server.page.routes.about", lambda context: b"a" * 4_000_000)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with HttpWorld(slow_reader_seconds=2 * HANG_S).on_a_port(room=4096) as url:
            sock.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            sock.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
            sock.recv(1)


def test_an_open_page_does_not_hold_up_a_stop() -> None:
    world = HttpWorld()
    with httpx.Client(timeout=HANG_S) as http:
        with world.on_a_port() as url:
            stream = http.send(http.build_request("GET", url + "/live"), stream=True)
            lines = stream.iter_lines()
            assert next(lines) == "event: about"
        with suppress(httpx.RemoteProtocolError):
            assert list(lines)  # to its end, rather than for ever
        stream.close()
