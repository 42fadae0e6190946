"""The Markdown of the repository: links lead somewhere, indexes are whole, and commands name files that are there."""

import re
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "benchmarks", "deploy", "examples", "src", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
LINK = re.compile(r"\]\(([^()\s]+)\)")
COMMAND = re.compile(r"\b((?:benchmarks|tests|examples|website)/[\w/]+\.(?:py|sh))\b")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def targets(page: Path) -> list[tuple[Path, str]]:
    """The file and the heading that each relative link of a page leads to."""
    links = (link for link in LINK.findall(_prose(page)) if not re.match(r"\w+:", link))
    parts = (link.partition("#") for link in links)
    return [((page.parent / unquote(path)).resolve() if path else page, anchor) for path, _, anchor in parts]


def anchors(page: Path) -> set[str]:
    """The headings as links name them: small letters, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _prose(page: Path) -> str:
    return re.sub(r"^(```.*?^```|    .*?)$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_relative_links_lead_somewhere() -> None:
    links = [(name(page), path, anchor) for page in PAGES for path, anchor in targets(page)]
    assert [(page, name(path)) for page, path, _ in links if not path.exists()] == []
    headings = {path: anchors(path) for _, path, anchor in links if anchor and path.suffix == ".md"}
    assert [(page, anchor) for page, path, anchor in links if anchor and anchor not in headings.get(path, anchor)] == []


def test_files_that_commands_name_are_there() -> None:
    named = [(name(page), path) for page in PAGES for path in COMMAND.findall(page.read_text())]
    assert [(page, path) for page, path in named if not (ROOT / path).is_file()] == []


def test_no_table_is_cut_by_a_blank_line() -> None:
    tables = [(name(page), table) for page in PAGES for table in TABLE.findall(_prose(page))]
    assert [(page, table) for page, table in tables if not re.match(r".*\n\|[ :|-]+\|\n", table)] == []


def test_every_page_of_the_docs_is_in_their_index() -> None:
    listed = {path for path, _ in targets(ROOT / "docs" / "README.md")}
    pages = {path for path in PAGES if "docs" in path.parts and path.name != "README.md"}
    assert {name(page) for page in pages - listed} == set()


def test_every_file_beside_them_is_shown_by_a_page() -> None:
    shown = {path for page in PAGES for path, _ in targets(page)}
    text = "".join(page.read_text() for page in PAGES)
    beside = [path for path in (ROOT / "docs").rglob("*") if path.is_file() and path.suffix != ".md"]
    assert [name(path) for path in beside if path not in shown and path.name not in text] == []


def test_every_section_of_results_says_when_it_was_measured() -> None:
    for page in sorted((ROOT / "docs" / "results").glob("*.md")):
        _, *sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
        undated = [section for section in sections if not re.search(r"\b20\d\d-\d\d-\d\d\b", section)]
        assert [section.partition("\n")[0] for section in undated] == [], name(page)


def test_every_benchmark_is_in_their_index() -> None:
    index = (ROOT / "benchmarks" / "README.md").read_text()
    sections = dict(re.findall(r"^## `(\w+)/`(.*?)(?=^## |\Z)", index, re.M | re.S))
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        assert f"`{path.name}`" in sections[path.parent.name], name(path)
