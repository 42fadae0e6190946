"""What the chat does with a conversation, and with answers that are not to be trusted, in a real browser."""

import json
import re

import pytest

from e2e.test_chat_box import chat, ended, fill, press_button, prompt, say, texts, world_of
from fakes.browser import Browser, browse, needs_chromium
from fakes.http_world import HttpWorld

pytestmark = [pytest.mark.slow, needs_chromium]
HOSTILE = """<script>document.title = 'taken'</script>

<img src=x onerror="document.title = 'taken'"> and <svg onload="document.title = 'taken'"></svg>

[one](javascript:document.title='taken') [two](data:text/html,<script>1</script>) [three](JaVaScRiPt&colon;alert(1))

![look](https://evil.example/pixel.png) <iframe srcdoc="<script>parent.document.title = 'taken'</script>"></iframe>

<form action="https://evil.example"><input name="key"><button>Go on</button></form>

[fine](https://example.org/a?b=1&c=2 "a title") <a href="/live" id="chat" class="turn" style="position:fixed">x</a>

| a | b |
|---|:-:|
| <b onclick="document.title = 'taken'">1</b> | `<i>2</i>` |

```html
<script>document.title = 'taken'</script>
```
"""


def test_an_answer_can_neither_run_nor_fetch_anything() -> None:
    with chat(world_of(HOSTILE)) as browser:
        say(browser, "Hi")
        ended(browser, 1)
        found = "[...document.querySelectorAll('.parts *')]"
        tags = set(browser.run(f"{found}.map(e => e.tagName.toLowerCase())"))
        assert tags <= {
            "div",
            "p",
            "br",
            "a",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "pre",
            "code",
            "span",
            "button",
        }
        attributes = set(browser.run(f"{found}.flatMap(e => e.getAttributeNames())"))
        assert attributes <= {"class", "href", "title", "align", "target", "rel", "type"}
        links = browser.run(
            "[...document.querySelectorAll('.parts a')].map(a => [a.textContent, a.getAttribute('href')])"
        )
        assert dict(links) == {
            "one": None,
            "two": None,
            "three": None,
            "look": "https://evil.example/pixel.png",
            "fine": "https://example.org/a?b=1&c=2",
        }
        assert browser.run("document.title") == "small · chairlift"
        assert texts(browser, ".parts p")[0] == "<script>document.title = 'taken'</script>", (
            "it is shown as it was written"
        )
        assert texts(browser, ".parts pre") == ["<script>document.title = 'taken'</script>"]
        assert browser.run("[...document.querySelectorAll('#chat')].length") == 1
        fetched = browser.run("performance.getEntriesByType('resource').map(e => new URL(e.name).host)")
        assert set(fetched) == {browser.run("location.host")}


def test_markup_that_does_not_come_from_the_sanitiser_is_refused_by_the_browser() -> None:
    with chat(world_of("Hello.")) as browser:
        refused = "(() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } })()"
        assert browser.run(refused)
        browser.problems.clear()


def test_markdown_is_shown_as_what_it_means() -> None:
    with chat(world_of("# Title\n\n- **one**\n- *two*\n\n1. three\n\n```python\nx = 1\n```\n\n- [x] done")) as browser:
        say(browser, "Hi")
        ended(browser, 1)
        shown = {
            name: texts(browser, f".parts {name}") for name in ("h1", "strong", "em", "ol li", "pre", ".code-head span")
        }
        assert shown == {
            "h1": ["Title"],
            "strong": ["one"],
            "em": ["two"],
            "ol li": ["three"],
            "pre": ["x = 1"],
            ".code-head span": ["python"],
        }
        assert texts(browser, ".parts li")[-1] == "☑ done"


def test_the_rate_of_an_answer_is_over_all_of_its_time_however_it_was_read() -> None:
    with chat(world_of("It is sunny in all of the country.")) as browser:
        # All of the stream in one piece, half a second late, as a busy browser reads it.
        browser.run(
            "window.fetch = (ask => async (path, options) => { const answer = await ask(path, options);"
            "if (!path.startsWith('/v1/chat')) return answer; const text = await answer.text();"
            "await new Promise(done => setTimeout(done, 500)); return new Response(text) })(window.fetch)"
        )
        say(browser, "Hi")
        ended(browser, 1)
        [figures] = texts(browser, ".figures")
    found = re.fullmatch(r"first token .* · (\d+) tokens in (\S+) (m?s), (\S+)/s", figures)
    assert found is not None, figures
    total_s = float(found[2]) / (1000 if found[3] == "ms" else 1)
    assert total_s >= 0.5
    assert float(found[4]) == pytest.approx(int(found[1]) / total_s, rel=0.02)


def test_an_answer_is_made_again_without_the_first() -> None:
    world = world_of("One.", "Two.", "Three.")
    with chat(world) as browser:
        say(browser, "Hi")
        ended(browser, 1)
        first = prompt(world)
        press_button(browser, "regenerate")
        browser.until("document.querySelector('.answer .turn')?.textContent.trim() === 'Two.'")
        ended(browser, 1)
        assert prompt(world) == first


def test_a_question_that_is_edited_drops_what_came_after_it() -> None:
    world = world_of("One.", "Two.", "Three.")
    with chat(world) as browser:
        for number, text in enumerate(("Hi", "And"), 1):
            say(browser, text)
            ended(browser, number)
        press_button(browser, "edit", 0)
        assert browser.run("document.activeElement.value") == "Hi"
        browser.run("document.activeElement.select()")
        browser.type("Hello")
        browser.press("Enter")
        browser.until("document.querySelector('.answer .turn')?.textContent.trim() === 'Three.'")
        ended(browser, 1)
        assert texts(browser, ".user") == ["Hello"]
    assert prompt(world) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_the_browser_keeps_the_conversation_and_the_options() -> None:
    world = world_of("One.", "Two.")
    with chat(world) as browser:
        set_option(browser, "temperature", "0.5")
        say(browser, "Hi")
        ended(browser, 1)
        reload(browser)
        assert texts(browser, ".answer .turn") == ["One."]
        say(browser, "And")
        ended(browser, 2)
        assert browser.run("document.getElementById('options-changed').textContent") == " (1 set)"
    assert "user\nHi<|im_end|>\n<|im_start|>assistant\nOne.<|im_end|>\n<|im_start|>user\nAnd" in prompt(world)
    assert world.client.requests[-1].params.temperature == 0.5


def reload(browser: Browser) -> None:
    browser.reload()
    browser.until("document.getElementById('model').innerText === 'small'")


def set_option(browser: Browser, name: str, value: str) -> None:
    fill(browser, f"#option-{name}", value)
    browser.run("document.getElementById('options-box').dispatchEvent(new Event('change'))")


@pytest.mark.parametrize(
    "kept", ["[", "7", '[{"role": "assistant", "parts": [{"kind": "x"}]}, null, {"role": "user"}]']
)
def test_what_the_browser_kept_of_something_else_is_left_alone(kept: str) -> None:
    with chat(world_of("One.")) as browser:
        browser.run(f"localStorage.setItem('chairlift-chat', {json.dumps(kept)})")
        reload(browser)
        assert texts(browser, ".hint")
        say(browser, "Hi")
        ended(browser, 1)


def test_the_system_prompt_and_sampling_are_sent() -> None:
    world = world_of("One.")
    with chat(world) as browser:
        for name, value in {
            "system": "Be brief.",
            "top_k": "5",
            "seed": "7",
            "stop": "X,\\n\\n",
            "max_tokens": "9",
        }.items():
            set_option(browser, name, value)
        say(browser, "Hi")
        ended(browser, 1)
    params = world.client.requests[-1].params
    assert prompt(world).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi")
    assert (params.top_k, params.seed, params.stop, params.max_tokens) == (5, 7, ("X", "\n\n"), 9)


def test_a_question_without_an_answer_is_not_told_again() -> None:
    world = world_of("One.", "Two.")
    with chat(world) as browser:
        world.client.refusal = ("messages", "no room")
        say(browser, "Hi")
        ended(browser, 1)
        assert texts(browser, ".error") == ["messages: no room"]
        assert "400" in browser.problems.pop()
        world.client.refusal = None
        say(browser, "Again")
        ended(browser, 2)
    assert prompt(world) == "<|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n"


def test_a_model_is_chosen_among_those_that_are_served() -> None:
    world = HttpWorld()
    with chat(world) as browser:
        browser.until("document.querySelectorAll('#chat-model option').length === 2")
        fill(browser, "#chat-model", "org/small")
        reload(browser)
        browser.until("document.getElementById('chat-model').value === 'org/small'")


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768), (390, 844)])
@pytest.mark.parametrize("view", ["", "#chat"])
def test_a_message_can_be_sent_without_scrolling(width: int, height: int, view: str) -> None:
    with HttpWorld().on_a_port() as url, browse() as browser:
        browser.open(url + "/" + view, width, height)
        browser.until("document.getElementById('model')?.innerText === 'small'")
        box = browser.run("document.getElementById('chat-send').getBoundingClientRect().toJSON()")
        assert 0 < box["top"] < box["bottom"] <= height
        assert box["right"] <= width
