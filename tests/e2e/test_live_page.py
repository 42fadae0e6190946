"""The live page in a real browser, on a real server under load."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from PIL import Image
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.wire.messages import Explain, Snapshot, Watch
from chairlift.telemetry.device import DeviceUse
from chairlift.telemetry.watch.view import View
from fakes.browser import Browser, browse, needs_chromium
from fakes.clocks import HeldClock
from fakes.http_world import HttpWorld
from fakes.ledger import LedgerRunner
from fakes.patience import HANG_S
from fakes.served import Served, serve
from fakes.viewed import viewed

pytestmark = [pytest.mark.slow, needs_chromium]
LIMITS = ("--max-running", "4", "--num-blocks", "48", "--max-step-tokens", "64", "--kernels", "torch")
BLUE, DARK_BLUE = (59, 125, 221), (91, 150, 234)


@pytest.fixture(scope="module")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("live") / "log", "--model", tiny_model, *LIMITS) as served:
        yield served


@contextmanager
def load(url: str, num_clients: int = 10) -> Iterator[None]:
    """Clients that ask again and again; more than run at once."""
    is_over = threading.Event()

    def ask(client: int) -> None:
        body = {"prompt": [client + i for i in range(60)], "max_tokens": 30, "ignore_eos": True, "user": f"u{client}"}
        with httpx.Client(timeout=HANG_S) as http:
            while not is_over.is_set():
                assert http.post(url + "/v1/completions", json=body).status_code == 200

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(num_clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def page(served: Served) -> Iterator[Browser]:
    with load(served.url), browse() as browser:
        browser.open(served.url + "/", 1500, 1700)
        browser.until("document.body?.dataset.status === 'live'")
        browser.until("Number(document.querySelector('#tiles .tile b').firstChild.data) > 0")
        yield browser
        assert browser.problems == []


def text(browser: Browser, name: str) -> str:
    found = browser.run(f"document.getElementById('{name}').innerText")
    assert isinstance(found, str)
    return found


def share(path: Path, colour: tuple[int, int, int]) -> float:
    with Image.open(path) as image:
        counts = {seen: count for count, seen in image.convert("RGB").getcolors(1 << 24) or []}
        return counts.get(colour, 0) / (image.width * image.height)


def test_charts_are_drawn_and_follow_the_engine(page: Browser, tmp_path: Path) -> None:
    page.until("document.querySelectorAll('#charts canvas').length === 8")
    values = (
        "[...document.querySelectorAll('#charts .chart')].map(c => [...c.querySelectorAll('b')].map(b => b.innerText))"
    )
    page.until(f"{values}.slice(0, 2).flat().filter(value => value === '–').length === 0")
    page.until(f"{values}[4][3] !== '–'")  # of what the front ends count, once there are two ticks
    requests, tokens, _, between, ended, device, *_ = page.run(values)
    assert between[0].endswith("s")
    assert ended[1:] == ["0", "0", "0"]
    assert device[1] == "–", "a CPU has no memory of its own"
    assert 0 < int(requests[0]) <= 4
    assert float(tokens[0].replace(",", "").replace("k", "e3")) > 0
    page.until("document.getElementById('memory-key').innerText.includes('held')")
    page.shoot(tmp_path / "light.png")
    assert share(tmp_path / "light.png", BLUE) > 0.0003
    assert "fcfs" in text(page, "rules")
    assert page.run("document.getElementById('restarts').textContent") == "0"
    assert tile(page, "errors")[1:] != ["–", ""]


def tile(browser: Browser, title: str) -> list[str]:
    """Title, value and note."""
    tiles: list[str] = browser.run("[...document.querySelectorAll('.tile')].map(tile => tile.innerText)")
    return next(found for words in tiles if (found := words.split("\n"))[0] == title)


def test_the_device_of_a_server_on_a_cpu_is_busy_with_steps(page: Browser) -> None:
    _, value, note = tile(page, "device")
    assert note == "computing steps"
    assert 0 < int(value.removesuffix("%busy")) <= 100


@pytest.mark.parametrize(
    ("use", "value", "note"),
    [
        (DeviceUse(0.87, 61 << 30, 80 << 30, 410.5, 700.0), "87%busy", "61/80 GiB, 411 W"),
        (DeviceUse(None, 61 << 30, 80 << 30), "50%busy", "61/80 GiB"),
        (DeviceUse(), "50%busy", "computing steps"),
    ],
)
def test_of_a_gpu_is_shown_what_its_driver_tells(
    use: DeviceUse, value: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = HttpWorld()
    view = half_busy(world.client.limits, use)

    def answer(message: Watch | Explain) -> bool:
        if message == Watch(True):
            asyncio.get_running_loop().call_soon(world.client.watching.hear, Snapshot(True, view.whole()))
        return True

    monkeypatch.setattr(world.client.watching, "_send", answer)
    with world.on_a_port() as url, browse() as browser:
        browser.open(url + "/")
        browser.until("document.body?.dataset.status === 'live'")
        assert tile(browser, "device") == ["device", value, note]


def half_busy(limits: Limits, use: DeviceUse) -> View:
    """A view with one tick, for half of which a step was in flight."""
    clock = HeldClock()
    runner = LedgerRunner(limits.num_blocks, limits.block_size, limits.vocab_size)
    engine = Engine(Scheduler(limits, Fcfs()), runner, clock)
    view = viewed(engine, lambda: use)
    engine.runner.submit(StepPlan(0, (), (), 0, 0))
    clock.time += 1.0
    engine.runner.collect()
    clock.time += 1.0
    view.advance()
    return view


def test_a_click_on_a_request_says_where_its_time_went(page: Browser) -> None:
    page.until("parseInt(document.getElementById('requests-note').innerText) > 20")
    box = "document.getElementById('bars').getBoundingClientRect()"
    left, top, width = page.run(f"(() => {{ const b = {box}; return [b.left, b.top, b.width] }})()")
    for back in range(1, 60):  # there may be gaps between one request and the next
        page.click(left + width - 4 * back, top + 24)
        if text(page, "why-title").startswith("Request "):
            break
    page.until("document.getElementById('why-body').innerText.includes('prompt tokens')")
    words = text(page, "why-body")
    assert "60 prompt tokens" in words
    assert "When it came, " in words
    assert "queued" in words


def test_the_timeline_is_within_reach_of_a_keyboard(page: Browser) -> None:
    page.run("document.getElementById('bars').focus()")
    page.press("ArrowLeft")
    page.until("document.getElementById('why-body').innerText.includes('prompt tokens')")
    first = text(page, "why-title")
    page.press("ArrowLeft")
    page.until(f"document.getElementById('why-title').innerText !== '{first}'")


def test_the_chat_box_streams_an_answer_and_can_be_stopped(page: Browser) -> None:
    page.run("document.getElementById('option-max_tokens').value = 8")
    page.run("document.getElementById('chat-text').focus()")
    page.type("Hello there")
    page.press("Enter")
    page.until("/first token .* \\d+ tokens/.test(document.getElementById('chat-log').innerText)")
    page.until("!document.getElementById('chat-send').hidden")
    page.run("document.getElementById('option-max_tokens').value = 150")
    page.type("And on")
    page.press("Enter")
    page.until("!document.getElementById('chat-stop').hidden")
    page.run("document.getElementById('chat-stop').click()")
    page.until("document.getElementById('chat-log').innerText.includes('stopped')")
    page.until("!document.getElementById('chat-send').hidden")


def test_it_is_dark_where_the_system_is_and_where_it_is_told_to_be(page: Browser, tmp_path: Path) -> None:
    page.shape(1500, 1700, is_dark=True)
    page.until("document.documentElement.dataset.theme === 'dark'")
    page.until("document.querySelector('#charts b').innerText > 0")
    page.shoot(tmp_path / "dark.png")
    assert share(tmp_path / "dark.png", DARK_BLUE) > 0.0003
    page.run("document.getElementById('theme').click()")
    assert page.run("document.documentElement.dataset.theme") == "light"
    assert text(page, "theme") == "light"


@pytest.mark.parametrize("width", [360, 800, 1200, 1500, 1640])
def test_nothing_is_wider_than_the_screen(page: Browser, width: int, tmp_path: Path) -> None:
    page.shape(width, 740)
    page.until("document.querySelector('#charts b').innerText > 0")
    assert page.run("document.documentElement.scrollWidth") <= width
    wide = page.run(
        "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
        ".filter(e => !e.closest('.key, .sr, #tiles')).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    cut = (
        "[...document.querySelectorAll('.chart .key')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
    )
    assert page.run(cut) == []


def test_news_move_nothing(page: Browser) -> None:
    page.until("document.querySelector('#charts b').innerText > 0")
    parts = "[...document.querySelectorAll('main > *, .tile, .chart canvas')]"
    places = f"JSON.stringify({parts}.map(e => [e.offsetTop, e.offsetHeight]))"
    before = page.run(places)
    page.run("new Promise(done => setTimeout(done, 2500))")
    assert page.run(places) == before


def guarded(app: ASGIApp) -> ASGIApp:
    """Everything but the page itself wants a key."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        has_key = (b"authorization", b"Bearer sesame") in scope["headers"]
        inner = app if has_key or scope["path"] == "/" else Response("no key", 401)
        await inner(scope, receive, send)

    return call


def test_the_page_asks_for_a_key_and_keeps_it_for_the_tab() -> None:
    world = HttpWorld()
    world.app = guarded(world.app)  # type: ignore[assignment]
    with world.on_a_port() as url, browse() as browser:
        browser.open(url + "/")
        for key in ("wrong", "sesame"):
            browser.until("document.getElementById('key-dialog')?.open")
            browser.run("document.getElementById('key').focus()")
            browser.type(key)
            browser.press("Enter")
        browser.until("document.getElementById('model').innerText === 'small'")
        assert not browser.run("document.getElementById('key-dialog').open")
        assert browser.run("sessionStorage.getItem('chairlift-key')") == "sesame"
        browser.run("document.getElementById('chat-text').focus()")
        browser.type("Hi")
        browser.press("Enter")
        browser.until("document.getElementById('chat-log').innerText.includes('Hello world, hello there.')")


def test_the_page_goes_on_when_the_engine_dies(page: Browser, served: Served) -> None:
    page.until("document.querySelector('#charts b').innerText > 0")
    engine, _ = served.pids()
    os.kill(engine, signal.SIGKILL)
    page.until("document.body.dataset.status === 'away'")
    page.until("document.body.dataset.status === 'live'")
    page.until("document.getElementById('restarts').textContent === '1'")
    page.until("document.querySelector('#charts b').innerText > 0")
