"""Runs what docs/llm-serving.md shows, in both languages."""

import re
import shlex
from pathlib import Path

import pytest

from fakes.served import chairlift

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "llm-serving.md", DOCS / "llm-serving.zh.md"]
SIMULATE = ("simulate", "--workload", "contest", "--arrivals", "none")
PRESET = ("--preset", "llm-serving")


def tricks(page: Path) -> dict[str, str]:
    """Seconds by the options of each row."""
    rows = re.findall(r"^\| [^|]* \| (?:`([^`]*)`)? ?\| ([0-9.]+) s", page.read_text(), re.MULTILINE)
    return dict(rows)


def total_s(*options: str) -> str:
    done = chairlift(*SIMULATE, *options)
    assert done.returncode == 0, done.stderr
    found = re.search(r"total time +([0-9.]+) s", done.stdout)
    assert found is not None, done.stdout
    return found[1]


def test_both_pages_show_the_same_figures_and_commands() -> None:
    english, chinese = (page.read_text() for page in PAGES)
    assert tricks(PAGES[0]) == tricks(PAGES[1])
    assert len(tricks(PAGES[0])) == 8
    for text in (r"^    chairlift .*$", r"[0-9]+\.[0-9]{3} s", r"`--[a-z-]+"):
        commands = [re.findall(text, page, re.MULTILINE) for page in (english, chinese)]
        assert sorted(commands[0]) == sorted(commands[1]), text


@pytest.mark.nightly
@pytest.mark.parametrize(("options", "seconds"), tricks(PAGES[0]).items())
def test_a_trick_is_worth_what_the_page_says(options: str, seconds: str) -> None:
    assert total_s(*PRESET, *shlex.split(options)) == seconds


def test_the_total_without_a_preset_is_the_page_s() -> None:
    page = PAGES[0].read_text()
    assert f"chairlift takes {total_s()} s" in page
    assert f"`, {total_s('--max-running', '256', '--policy', 'longest-first')} s" in page
