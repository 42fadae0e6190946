"""The docs' site: pages that follow from the code are up to date, and what it is made of leads somewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
WEBSITE = ROOT / "website"
MODULES = ("pages", "nav", "check")


@pytest.fixture(scope="module")
def website() -> Iterator[SimpleNamespace]:
    """The site's modules, which are scripts beside each other; forgotten again, as their names are anyone's."""
    sys.path.insert(0, str(WEBSITE))
    try:
        yield SimpleNamespace(**{name: _module(name) for name in MODULES})
    finally:
        sys.path.remove(str(WEBSITE))
        for name in MODULES:
            sys.modules.pop(name, None)


def _module(name: str) -> ModuleType:
    return importlib.import_module(name)


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(WEBSITE / name), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_reference_is_what_the_code_says() -> None:
    done = script("reference.py", "--check")
    assert done.returncode == 0, f"run make reference; outdated: {done.stdout}{done.stderr}"


def test_every_page_of_the_index_is_in_the_navigation_once(website: SimpleNamespace) -> None:
    entries = list(_entries(website.nav.navigation()))
    assert len(entries) == len(set(entries))
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"README.md"}
    assert pages - set(entries) == set()


def _entries(nav: list[dict[str, object]]) -> Iterator[str]:
    for entry in nav:
        for place in entry.values():
            if isinstance(place, list):
                yield from _entries(place)
            else:
                yield str(place)


def test_links_of_the_site_lead_to_its_pages(website: SimpleNamespace, tmp_path: Path) -> None:
    website.pages.write_pages(tmp_path)
    pages = sorted(tmp_path.rglob("*.md"))
    assert tmp_path / "index.md" in pages
    for page in pages:
        if "files" not in page.relative_to(tmp_path).parts:
            _check_links(website, page)
    assert "```python\n" in (tmp_path / "files/src/chairlift/core/policy.py.md").read_text()


def _check_links(website: SimpleNamespace, page: Path) -> None:
    def check(prose: str) -> str:
        for link in re.findall(r"\]\(([^()\s#]+)", re.sub(r"^    .*$", "", prose, flags=re.MULTILINE)):
            assert re.match(r"\w+:", link) or (page.parent / link).is_file(), f"{page}: {link}"
        return prose

    website.pages.outside_fences(page.read_text(), check)


def test_a_built_page_s_faults_are_found(website: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script src="https://elsewhere.example/x.js"></script><a href="b.html#there">'
        '<a href="b.html#nowhere"><a href="c.html"><a href="https://elsewhere.example">'
    )
    (tmp_path / "b.html").write_text('<h1 id="there"></h1><a href="#there">')
    assert website.check.faults(tmp_path) == [
        "a.html: fetches https://elsewhere.example/x.js",
        "a.html: b.html#nowhere leads nowhere",
        "a.html: c.html leads nowhere",
    ]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="make docs installs zensical")
def test_the_site_builds(tmp_path: Path) -> None:
    done = script("build.py", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "quickstart.html").is_file()
