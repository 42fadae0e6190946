"""What is told of a run: its slowest tests and its folders; which nightly tests a commit samples."""

from pathlib import Path

import pytest

from sample import chosen, green, lines, listed
from timings import read, table

REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.core.test_pool" name="test_quick[1]" time="0.5" />
<testcase classname="tests.e2e.test_deaths" name="test_kill[a/b]@server" time="7.0"><properties /></testcase>
<testcase classname="tests.e2e.test_deaths" name="test_kill[c]@server" time="2.0"><skipped message="no" /></testcase>
<testcase classname="tests.e2e.test_drains" name="test_drain" time="3.0"><failure message="no" /></testcase>
<testcase classname="tests.e2e.test_tools" name="test_tool" time="1.0"><skipped message="no" /></testcase>
</testsuite></testsuites>"""
TESTS = {f"tests/unit/test_{i}.py::test_it": float(i) for i in range(20)}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    return path


def test_the_slowest_come_first_and_folders_add_up(report: Path) -> None:
    told = [line.split() for line in table([*read(report)]).splitlines()]
    assert told[0] == ["7.0", "s", "tests/e2e/test_deaths.py::test_kill[a/b]@server"]
    assert told[-3:] == [["13", "4", "e2e"], ["0", "1", "unit/core"], ["14", "5", "all"]]


def test_tests_are_green_that_passed_and_never_failed(report: Path) -> None:
    found = green(read(report))
    assert found == {"tests/unit/core/test_pool.py::test_quick": 0.5, "tests/e2e/test_deaths.py::test_kill": 7.0}
    assert listed(lines(found)) == found


def test_a_commit_chooses_what_fits_and_another_chooses_otherwise() -> None:
    samples = [chosen(TESTS, commit, 30) for commit in ("a", "b", "a")]
    assert samples[0] == samples[2] != samples[1]
    assert all(1 < len(each) < 20 and sum(TESTS[test] for test in each) <= 30 for each in samples)
