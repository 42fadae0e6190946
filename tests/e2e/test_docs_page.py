"""The API docs in a real browser."""

import pytest

from fakes.browser import browse, needs_chromium
from fakes.http_world import HttpWorld

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.mark.parametrize("width", [390, 1440])
def test_every_operation_is_shown_and_nothing_is_wider_than_the_screen(width: int) -> None:
    world = HttpWorld()
    with world.on_a_port() as url, browse() as browser:
        browser.open(url + "/docs", width, 844)
        browser.until("document.querySelectorAll('.operation').length > 0")
        ids = "Object.values(api.paths).flatMap(ways => Object.values(ways).map(way => way.operationId))"
        wanted = browser.run(f"fetch('/openapi.json').then(a => a.json()).then(api => {ids})")
        assert browser.run("[...document.querySelectorAll('.operation')].map(e => e.id)") == wanted
        browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
        browser.until("document.querySelectorAll('#createChatCompletion .fields .fields tr').length > 5")
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.problems == []


def test_an_operation_can_be_tried() -> None:
    world = HttpWorld()
    with world.on_a_port() as url, browse() as browser:
        browser.open(url + "/docs")
        browser.until("document.querySelectorAll('.operation').length > 0")
        browser.run("document.querySelector('#createChatCompletion .try').open = true")
        browser.run("document.querySelector('#createChatCompletion .try button').click()")
        output = "document.querySelector('#createChatCompletion .output').textContent"
        browser.until(f"{output}.includes('Hello world, hello there.')")
        browser.until("document.querySelector('#createChatCompletion .status').textContent.startsWith('200')")
        browser.run("document.querySelector('#createChatCompletion .try textarea').value = '{'")
        browser.run("document.querySelector('#createChatCompletion .try button').click()")
        browser.until("document.querySelector('#createChatCompletion .status').textContent.includes('JSON')")
        assert browser.problems == []


def test_the_docs_ask_for_a_key() -> None:
    with HttpWorld(api_key="sk-alice-0123456789").on_a_port() as url, browse() as browser:
        browser.open(url + "/docs#getVersion")
        browser.until("document.getElementById('key-dialog')?.open")
        browser.run("document.getElementById('key').focus()")
        browser.type("sk-alice-0123456789")
        browser.press("Enter")
        browser.until("document.querySelectorAll('.operation').length > 0")
        assert "Bearer KEY" in browser.run("document.querySelector('#getVersion .command').textContent")
