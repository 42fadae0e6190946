"""The page's chat box in a real browser: reasoning, calls and their results, by a scripted model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fakes.browser import Browser, browse, needs_chromium
from fakes.http_world import HttpWorld
from fakes.small_tokenizer import tokenizer_of
from fakes.tool_worlds import TOOLS, tool_world
from unit.text.responses.streams import hermes

pytestmark = [pytest.mark.slow, needs_chromium]
CITY = '{"city": "Bern", "tags": ["a, \\"b\\"", "{"], "where": {}}'
CALL = hermes(("weather", CITY))
THINKS = "<think>\nHm, <b>Bern</b>.\n</think>\n\n"
SHOWN = """{
  "city": "Bern",
  "tags": [
    "a, \\"b\\"",
    "{"
  ],
  "where": {}
}"""


def world_of(*answers: str) -> HttpWorld:
    """Its model gives these answers, one after the other."""
    world = tool_world("hermes", answers[0])
    scripts = [tool_world("hermes", says).answer for says in answers]
    world.client.script = lambda prompt, sample: scripts[len(world.client.requests) - 1]
    return world


@contextmanager
def chat(world: HttpWorld, tools: str = "") -> Iterator[Browser]:
    with world.on_a_port() as url, browse() as browser:
        browser.open(url + "/", 1200, 1000)
        browser.until("document.getElementById('model')?.innerText === 'small'")
        fill(browser, "#tools", tools)
        yield browser
        assert browser.problems == []


def fill(browser: Browser, where: str, text: str) -> None:
    field = f"document.querySelector('{where}')"
    browser.run(f"{field}.value = {json.dumps(text)}; {field}.dispatchEvent(new Event('change'))")


def say(browser: Browser, text: str) -> None:
    browser.run("document.getElementById('chat-text').focus()")
    browser.type(text)
    browser.press("Enter")


def ended(browser: Browser, num_answers: int) -> None:
    browser.until(f"document.querySelectorAll('#chat-log .figures').length === {num_answers}")
    browser.until("!document.getElementById('chat').classList.contains('busy')")


def texts(browser: Browser, where: str) -> list[str]:
    found: list[str] = browser.run(
        f"[...document.querySelectorAll('#chat-log {where}')].map(e => e.textContent.trim())"
    )
    return found


def prompt(world: HttpWorld) -> str:
    return world.tokenizer.decode(world.client.requests[-1].prompt, skip_special=False)


def answer_call(browser: Browser, result: str, index: int = 0) -> None:
    browser.run(f"document.querySelectorAll('.call textarea')[{index}].focus()")
    browser.type(result)
    browser.press("Enter")


def test_reasoning_is_folded_and_stays_as_the_user_left_it() -> None:
    world = world_of(THINKS + "It is sunny.", "Still sunny.")
    with chat(world) as browser:
        say(browser, "Hi")
        ended(browser, 1)
        [title] = texts(browser, ".thought summary")
        assert title.startswith("Thought for ")
        assert (texts(browser, ".thought div"), texts(browser, ".answer .turn")) == (
            ["Hm, <b>Bern</b>."],
            ["It is sunny."],
        )
        assert not browser.run("document.querySelector('.thought').open")
        browser.run("document.querySelector('.thought summary').click()")
        say(browser, "And now?")
        ended(browser, 2)
        assert browser.run("document.querySelector('.thought').open")
    assert "assistant\nIt is sunny.<|im_end|>" in prompt(world)


def test_thinking_is_said_while_it_lasts_and_can_be_stopped() -> None:
    world = world_of(THINKS + "It is sunny.")
    world.client.stalls_at = len("<think>\nHm,")
    with chat(world) as browser:
        say(browser, "Hi")
        browser.until("document.querySelector('.thought div')?.textContent.startsWith('Hm')")
        assert texts(browser, ".thought summary") == ["Thinking…"]
        browser.run("document.getElementById('chat-stop').click()")
        browser.until("document.getElementById('chat-log').innerText.includes('stopped')")
        assert texts(browser, ".thought summary")[0].startswith("Thought for ")


def test_an_answer_cut_by_max_tokens_says_so() -> None:
    with chat(world_of(THINKS + "It is sunny.")) as browser:
        fill(browser, "#option-max_tokens", "12")
        say(browser, "Hi")
        ended(browser, 1)
        assert texts(browser, ".figures")[0].endswith(" · max tokens reached")


def test_a_call_is_a_card_whose_result_continues_the_chat() -> None:
    world = world_of(THINKS + "Let me see." + CALL, THINKS + "It is sunny.", "Bye.")
    with chat(world, json.dumps(TOOLS)) as browser:
        assert browser.run("document.querySelector('#tools-box summary').innerText") == "tools: weather, now"
        say(browser, "Hi")
        ended(browser, 1)
        assert (texts(browser, ".call b"), texts(browser, ".call pre")) == (["weather"], [SHOWN])
        assert texts(browser, ".answer .turn") == ["Let me see."]
        answer_call(browser, "21 degrees")
        ended(browser, 2)
        assert texts(browser, ".answer .turn") == ["Let me see.", "It is sunny."]
        called = prompt(world)
        say(browser, "Thanks")
        ended(browser, 3)
    sent = called[called.index("<|im_start|>assistant") :]
    assert sent.startswith("<|im_start|>assistant\n<think>Hm, <b>Bern</b>.</think>Let me see.<tool_call>")
    assert '"name": "weather"' in sent and "<|im_start|>tool weather call_" in sent
    assert "\n21 degrees<|im_end|>\n<|im_start|>assistant\n" in sent
    assert prompt(world).startswith(called.removesuffix("<|im_start|>assistant\n"))


def test_the_chat_goes_on_when_all_calls_have_a_result() -> None:
    world = world_of(CALL + hermes(("now", "{}")), "It is sunny.")
    with chat(world, json.dumps(TOOLS)) as browser:
        say(browser, "Hi")
        ended(browser, 1)
        answer_call(browser, "noon", 1)
        assert len(world.client.requests) == 1
        answer_call(browser, "21 degrees", 0)
        ended(browser, 2)
    assert prompt(world).index("21 degrees") < prompt(world).index("noon")


def test_a_call_without_a_result_is_left_out_of_the_next_question() -> None:
    world = world_of("Let me see." + CALL, "It is sunny.")
    with chat(world, json.dumps(TOOLS)) as browser:
        say(browser, "Hi")
        ended(browser, 1)
        say(browser, "Never mind")
        ended(browser, 2)
        assert browser.run("document.querySelector('.call textarea').placeholder") == "not answered"
    assert "assistant\nLet me see.<|im_end|>\n<|im_start|>user\nNever mind" in prompt(world)


def test_results_that_could_not_be_sent_may_be_sent_again() -> None:
    world = world_of(CALL, "It is sunny.", "It is sunny.")
    with chat(world, json.dumps(TOOLS)) as browser:
        say(browser, "Hi")
        ended(browser, 1)
        world.client.refusal = ("messages", "no room")
        answer_call(browser, "21 degrees")
        ended(browser, 2)
        assert "no room" in texts(browser, ".error")[1]
        assert "400" in browser.problems.pop()
        world.client.refusal = None
        press_button(browser, "regenerate", 1)
        ended(browser, 2)
        browser.until("document.querySelectorAll('.answer .turn').length === 1")
    assert "\n21 degrees<|im_end|>" in prompt(world)


def press_button(browser: Browser, name: str, index: int = 0) -> None:
    buttons = "[...document.querySelectorAll('#chat-log button')]"
    browser.run(f"{buttons}.filter(each => each.textContent === '{name}')[{index}].click()")


def test_a_call_that_was_cut_cannot_be_answered() -> None:
    with chat(world_of(CALL), json.dumps(TOOLS)) as browser:
        fill(browser, "#option-max_tokens", "50")
        say(browser, "Hi")
        ended(browser, 1)
        assert texts(browser, ".call .hint") == ["Cut short: it cannot be answered."]
        assert texts(browser, ".call form") == []


@pytest.mark.parametrize(
    ("tools", "complaint"),
    [
        ("[{", "Tools must be JSON: "),
        ('{"type": "function"}', 'Tools must be a list: [{"type": "function"'),
        ('[{"type": "function", "function": {"name": "a"}}, {"name": "b"}]', 'Tool 2 must be {"type": "function"'),
    ],
)
def test_wrong_tools_are_named_and_nothing_is_sent(tools: str, complaint: str) -> None:
    world = world_of("It is sunny.")
    with chat(world, tools) as browser:
        say(browser, "Hi")
        browser.until("document.getElementById('tools-box').open")
        assert browser.run("document.getElementById('tools-wrong').innerText").startswith(complaint)
        assert browser.run("document.getElementById('chat-text').value") == "Hi"
        assert world.client.requests == []
        browser.run("document.getElementById('tools-example').click()")
        say(browser, "")
        ended(browser, 1)
    assert '"name": "weather"' in prompt(world)


def test_a_model_without_a_chat_template_continues_the_text_and_has_no_tools() -> None:
    world = HttpWorld("there.", tokenizer=tokenizer_of(None))
    with chat(world, "wrong") as browser:
        assert browser.run("document.getElementById('tools-box').hidden")
        say(browser, "Hello")
        ended(browser, 1)
        assert texts(browser, ".answer .turn") == ["there."]
    assert prompt(world) == "Hello"


@pytest.mark.parametrize("width", [360, 800, 1200])
def test_all_of_the_box_is_inside_its_frame(width: int) -> None:
    with chat(world_of(THINKS + "Let me see." + CALL), json.dumps(TOOLS)) as browser:
        say(browser, "Hi")
        ended(browser, 1)
        browser.shape(width, 800)
        browser.run("document.getElementById('tools-box').open = true")
        fill(browser, "#tools", "wrong")
        outside = browser.run(
            "(() => { const frame = document.getElementById('chat').getBoundingClientRect();"
            "return [...document.querySelectorAll('#chat *')].filter(e => !e.closest('.sr, option')).filter(e => {"
            "const box = e.getBoundingClientRect();"
            "const isBelow = !e.closest('#chat-log, details') && box.bottom > frame.bottom;"
            "return box.width && (box.left < frame.left || box.right > frame.right || isBelow)"
            "}).map(e => e.outerHTML.slice(0, 80)) })()"
        )
        assert outside == []
        assert browser.run("document.getElementById('chat-log').clientHeight") > 100


def test_a_new_conversation_holds_nothing_of_one_that_was_stopped_for_it() -> None:
    world = world_of("It is sunny.", "Hello.")
    world.client.stalls_at = 5
    with chat(world) as browser:
        say(browser, "Hi")
        browser.until("document.querySelector('.answer .turn')?.textContent.startsWith('It')")
        browser.run("document.getElementById('chat-new').click()")
        browser.until("!document.getElementById('chat').classList.contains('busy')")
        world.client.stalls_at = None
        say(browser, "Again")
        ended(browser, 1)
    assert prompt(world) == "<|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n"
