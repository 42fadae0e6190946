"""SECURITY.md: every line names the tests that hold it to what it says, and they are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")][1:]


def test_a_line_names_tests_that_are_there() -> None:
    assert LINES
    for line in LINES:
        named = re.findall(r"`([\w/]+\.py)`", line.rsplit("|", 2)[1])
        assert named, line
        assert [name for name in named if not (ROOT / "tests" / name).is_file()] == []
