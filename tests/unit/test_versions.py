"""The version is stated once, in `chairlift.config.version`; the changelog and whatever else shows it say the same."""

import re
from itertools import pairwise
from pathlib import Path

from chairlift.config.version import VERSION

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
DEPLOYED = sorted(path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".yaml", ".json", ".tpl"))
SHOWING = [*DEPLOYED, *sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CITATION.cff"]
# An image's tag, a chart's version, the label of a manifest.
SHOWN = re.compile(
    r"""(?:chairlift:|\btag: |^version: |^appVersion: |kubernetes\.io/version: )"?(\d+\.\d+\.\d+)""", re.M
)
HEADING = r"\[(\d+)\.(\d+)\.(\d+)\] - (unreleased|\d{4}-\d\d-\d\d)"
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def headings(level: int, text: str) -> list[str]:
    return re.findall(rf"^{'#' * level} (.+)$", text, re.MULTILINE)


def test_a_file_that_shows_the_version_shows_this_one() -> None:
    shown = {str(path.relative_to(ROOT)): SHOWN.findall(path.read_text()) for path in SHOWING}
    assert {name: found for name, found in shown.items() if not set(found) <= {VERSION}} == {}


def test_versions_are_found_where_they_are_shown() -> None:
    shown = {path.name for path in SHOWING if SHOWN.search(path.read_text())}
    assert {"Chart.yaml", "values-gpu.yaml", "cpu.yaml", "compose.yaml", "kubernetes.md", "CITATION.cff"} <= shown


def test_the_changelog_begins_with_this_version() -> None:
    assert headings(2, CHANGELOG)[0].startswith(f"[{VERSION}] - ")


def test_versions_of_the_changelog_go_down_and_only_the_topmost_may_lack_a_date() -> None:
    matches = [re.fullmatch(HEADING, heading) for heading in headings(2, CHANGELOG)]
    found = [match.groups() for match in matches if match]
    assert len(found) == len(matches), "a heading is `[1.2.3] - unreleased` or has a date there"
    versions = [tuple(int(part) for part in each[:3]) for each in found]
    assert all(newer > older for newer, older in pairwise(versions))
    assert not any(each[3] == "unreleased" for each in found[1:])


def test_the_changelog_sorts_changes_by_their_kind() -> None:
    for version in CHANGELOG.split("\n## ")[1:]:
        kinds = headings(3, version)
        assert kinds == [kind for kind in KINDS if kind in kinds], "known, once each, in the usual order"
        before, *lists = re.split(r"^### .+\n", version, flags=re.MULTILINE)
        assert "\n- " not in before, "a change belongs under a kind"
        assert all(each.strip().startswith("- ") for each in lists)
