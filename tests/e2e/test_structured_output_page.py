"""Runs what docs/structured-output.md shows, against the embedded model."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chairlift.text.responses.templates.families import BY_NAME
from fakes.patience import HANG_S
from fakes.served import Served
from fakes.shown_page import ShownPage
from fakes.tool_worlds import tool_world

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = ShownPage("structured-output.md")


@pytest.fixture(scope="module")
def names(embedded: Served) -> Iterator[dict[str, Any]]:
    names = PAGE.opening(embedded.url)
    with names["client"]:
        yield names


def test_a_schema(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("A JSON schema"), names)
    assert list(names["animal"]) == ["name", "legs"]
    assert 0 <= names["animal"]["legs"] <= 100
    assert names["parsed"].mood in ("good", "bad")


def test_expressions_choices_and_grammars(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("Expressions, choices, grammars"), names)
    assert re.fullmatch("(19|20)[0-9]{2}", names["year"].message.content)
    assert names["side"].message.content in ("heads", "tails")
    assert re.fullmatch("SELECT (name|age) FROM people", names["query"].message.content)
    ages = re.findall("<age>(.*?)</age>", names["tagged"].message.content)
    assert ages and all(0 <= int(age) <= 150 for age in ages)


def test_tools(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("Tools"), names)
    assert names["called"].finish_reason == "tool_calls"
    assert isinstance(names["arguments"]["city"], str)
    assert names["answered"].message.content and names["answered"].message.tool_calls is None


def test_reasoning() -> None:
    with tool_world("hermes", "<think>\n7 times 13.\n</think>\n\nNo.").on_a_port() as url:
        names = PAGE.opening(url)
        names["MODEL"] = "small"
        with names["client"]:
            found = PAGE.run(PAGE.section("Reasoning"), names)
    assert (found["reasoning"], found["content"]) == ("7 times 13.", "No.")


def test_responses(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("A JSON schema") + PAGE.section("Tools") + PAGE.section("The Responses API"), names)
    assert names["outputs"]
    assert all(json.loads(item.arguments)["city"] for item in names["first"].output)
    assert names["last"]
    assert names["mood"].mood in ("good", "bad")


def test_python(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("A JSON schema") + PAGE.section("Tools"), names)
    PAGE.run(PAGE.section("Python"), names)
    assert json.loads(names["completion"].text)["mood"] in ("good", "bad")
    assert [list(json.loads(call)) for call in names["calls"]] == [["city"], ["city"]]
    assert {piece.name for piece in names["pieces"]} == {"weather"}


def test_the_terminal(tmp_path: Path) -> None:
    command = f'chairlift() {{ "{sys.executable}" -m chairlift "$@"; }}\n{PAGE.section("The terminal", "sh")}'
    done = subprocess.run(
        ["sh", "-e", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    colour, legs = done.stdout.splitlines()
    assert json.loads(colour) in ("red", "green", "blue")
    assert re.fullmatch("[0-9]{1,3}", legs)


def test_every_format_is_listed() -> None:
    page = PAGE.text
    assert [name for name in BY_NAME if f"`{name}`" not in page] == []
