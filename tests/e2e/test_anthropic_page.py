"""Runs what docs/anthropic-api.md shows, against the embedded model."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from fakes.patience import HANG_S
from fakes.served import serve
from fakes.tool_worlds import tool_world

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "anthropic-api.md"
URL = "http://127.0.0.1:8000"
QUESTION = {"role": "user", "content": "What is the weather in Paris?"}
ASKS = """
import os, anthropic
with anthropic.Anthropic() as client:
    messages = [{"role": "user", "content": "Hi"}]
    print(client.messages.create(model=os.environ["ANTHROPIC_MODEL"], max_tokens=3, messages=messages).model)
"""


def section(heading: str, language: str = "python") -> str:
    [text] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL))


def opening(url: str) -> dict[str, Any]:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    assert URL in code
    return ran(code.replace(URL, url), {})


def ran(code: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(code, str(PAGE), "exec"), names)
    return names


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(tmp_path_factory.mktemp("server") / "log") as served:
        yield served.url


@pytest.fixture(scope="module")
def names(url: str) -> Iterator[dict[str, Any]]:
    names = opening(url)
    with names["client"]:
        yield names


def test_the_client(names: dict[str, Any]) -> None:
    assert names["text"] and names["streamed"] and names["counted"] > 0


def test_a_coding_agent_s_environment(url: str) -> None:
    exports = section("A coding agent", "sh")
    assert URL in exports
    done = subprocess.run(
        ["sh", "-e", "-c", f'{exports.replace(URL, url)}\n"{sys.executable}" -c "$0"', ASKS],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")},
    )
    assert (done.returncode, done.stdout) == (0, "SmolLM2-135M-Instruct\n"), done.stderr


def test_tools(names: dict[str, Any]) -> None:
    ran(section("Tools"), names)
    assert names["called"].stop_reason == "tool_use"
    assert isinstance(names["call"].input["city"], str)
    assert [block.type for block in names["answered"].content] == ["text"]


def test_thinking() -> None:
    with tool_world("hermes", "<think>\nHm.\n</think>\n\nSunny.").on_a_port() as url:
        names = {"client": anthropic.Anthropic(base_url=url, api_key="none"), "MODEL": "small", "question": QUESTION}
        with names["client"]:
            ran(section("Thinking"), names)
    assert names["kinds"] == ["thinking", "text"]


def test_a_schema(names: dict[str, Any]) -> None:
    ran(section("A JSON schema"), names)
    assert names["parsed"].mood in ("good", "bad")
