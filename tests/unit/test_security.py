"""SECURITY.md: every line names the tests that hold it to what it says, and they are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_line_names_tests_that_are_there(line: str) -> None:
    named = re.findall(r"`([\w/]+\.py)`", line.rsplit("|", 2)[1])
    assert named
    for name in named:
        assert (ROOT / "tests" / name).is_file(), name
