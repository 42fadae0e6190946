"""The READMEs: their tables are made from what there is, and the Chinese one has the English one's structure."""

import re
from pathlib import Path

import pytest

from chairlift.models.families.known import FAMILIES
from fakes.benchmark import load_benchmark

ROOT = Path(__file__).parents[2]
TABLES = load_benchmark("readme/tables")
KIND = re.compile(r"^(#+ |- |    |\||!\[|<!--|\[|`|\*\*)")


def structure(text: str) -> list[str]:
    """A line for each block: its kind, and what no translation changes of it (commands, and links but to pages that are
    translated too)."""
    found = []
    for line in text.splitlines():
        kind = KIND.match(line)
        if kind is None:
            continue
        links = [link.replace(".zh.md", ".md") for link in re.findall(r"\]\(([^)]+)\)", line)]
        found.append(" ".join([kind[1], line if kind[1] == "    " else "", *sorted(links)]))
    return found


@pytest.mark.parametrize("page", TABLES.PAGES)
def test_tables_are_as_they_would_be_made(page: str) -> None:
    assert TABLES.made(page) == (ROOT / page).read_text()


def test_every_family_has_a_name_that_people_know() -> None:
    assert set(TABLES.NAMES) == {family.architecture for family in FAMILIES}
    assert set(TABLES.MIXTURES) < set(TABLES.NAMES)


def test_the_chinese_page_has_the_structure_of_the_english_one() -> None:
    english, chinese = ((ROOT / page).read_text() for page in TABLES.PAGES)
    assert structure(chinese) == structure(english)


def test_a_missing_point_or_another_command_is_a_difference() -> None:
    text = (ROOT / "README.md").read_text()
    assert structure(text.replace("- **Python**", "**Python**")) != structure(text)
    assert structure(text.replace("make serve  ", "make served ")) != structure(text)


def test_it_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) < 800
