"""Runs what docs/structured-output.md shows, against the embedded model."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chairlift.cli.main import main
from chairlift.text.responses.templates.families import BY_NAME
from fakes.served import Served
from fakes.shown_page import ShownPage
from fakes.tool_worlds import tool_world

pytestmark = pytest.mark.nightly
PAGE = ShownPage("structured-output.md")


@pytest.fixture(scope="module")
def names(embedded: Served) -> Iterator[dict[str, Any]]:
    names = PAGE.opening(embedded.url)
    with names["client"]:
        yield names


@pytest.fixture(scope="module")
def shape(names: dict[str, Any]) -> None:
    """The names that this section leaves: other sections use them."""
    PAGE.run(PAGE.section("A JSON schema"), names)


@pytest.fixture(scope="module")
def tools(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("Tools"), names)


@pytest.mark.usefixtures("shape")
def test_a_schema(names: dict[str, Any]) -> None:
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


@pytest.mark.usefixtures("tools")
def test_tools(names: dict[str, Any]) -> None:
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


@pytest.mark.usefixtures("shape", "tools")
def test_responses(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("The Responses API"), names)
    assert names["outputs"]
    assert all(json.loads(item.arguments)["city"] for item in names["first"].output)
    assert names["last"]
    assert names["mood"].mood in ("good", "bad")


@pytest.mark.usefixtures("shape", "tools")
def test_python(names: dict[str, Any]) -> None:
    PAGE.run(PAGE.section("Python"), names)
    assert json.loads(names["completion"].text)["mood"] in ("good", "bad")
    assert [list(json.loads(call)) for call in names["calls"]] == [["city"], ["city"]]
    assert {piece.name for piece in names["pieces"]} == {"weather"}


@pytest.mark.nightly
def test_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for line in PAGE.section("The terminal", "sh").splitlines():
        name, *arguments = shlex.split(line)
        if name == "chairlift":
            assert main(arguments) == 0  # in this process, which takes less time
        else:
            subprocess.run(["sh", "-c", line], check=True)
    colour, legs = capsys.readouterr().out.splitlines()
    assert json.loads(colour) in ("red", "green", "blue")
    assert re.fullmatch("[0-9]{1,3}", legs)


def test_every_format_is_listed() -> None:
    page = PAGE.text
    assert [name for name in BY_NAME if f"`{name}`" not in page] == []
