"""Runs what docs/anthropic-api.md shows, against the embedded model."""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from fakes.patience import HANG_S
from fakes.served import Served
from fakes.shown_page import URL, ShownPage
from fakes.tool_worlds import tool_world

pytestmark = pytest.mark.nightly
PAGE = ShownPage("anthropic-api.md")
QUESTION = {"role": "user", "content": "What is the weather in Paris?"}
ASKS = """
import os, anthropic
with anthropic.Anthropic() as client:
    messages = [{"role": "user", "content": "Hi"}]
    print(client.messages.create(model=os.environ["ANTHROPIC_MODEL"], max_tokens=3, messages=messages).model)
"""


@pytest.fixture(scope="module")
def names(embedded: Served) -> Iterator[dict[str, Any]]:
    names = PAGE.opening(embedded.url)
    with names["client"]:
        yield names


def test_the_client(names: dict[str, Any]) -> None:
    assert names["text"] and names["streamed"] and names["counted"] > 0


def test_a_coding_agent_s_environment(embedded: Served) -> None:
    exports = PAGE.section("A coding agent", "sh")
    assert URL in exports
    done = subprocess.run(
        ["sh", "-e", "-c", f'{exports.replace(URL, embedded.url)}\n"{sys.executable}" -c "$0"', ASKS],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")},
    )
    assert (done.returncode, done.stdout) == (0, "SmolLM2-135M-Instruct\n"), done.stderr


def test_tools(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("Tools"), names)
    assert names["called"].stop_reason == "tool_use"
    assert isinstance(names["call"].input["city"], str)
    assert [block.type for block in names["answered"].content] == ["text"]


def test_thinking() -> None:
    with tool_world("hermes", "<think>\nHm.\n</think>\n\nSunny.").on_a_port() as url:
        names = {"client": anthropic.Anthropic(base_url=url, api_key="none"), "MODEL": "small", "question": QUESTION}
        with names["client"]:
            PAGE.run(PAGE.section("Thinking"), names)
    assert names["kinds"] == ["thinking", "text"]


def test_a_schema(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("A JSON schema"), names)
    assert names["parsed"].mood in ("good", "bad")
