"""A sample of nightly tests that were green in the last whole nightly run: `make sample`.

    python tests/sample.py [--seconds 90]
    python tests/sample.py --record build/nightly.xml

tests/nightly.txt holds the green tests of `make nightly`, each with the seconds of its slowest item. The hash of the
commit chooses tests whose seconds fit, and one item of each. What fails is run once more, by itself.
"""

import argparse
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from timings import Timed, read

ROOT = Path(__file__).parents[1]
GREEN = ROOT / "tests" / "nightly.txt"


def green(timed: Iterable[Timed]) -> dict[str, float]:
    """Tests of which an item passed and none failed, with the seconds of the slowest."""
    found = defaultdict[str, list[Timed]](list)
    for each in timed:
        found[each.test].append(each)
    return {
        test: max(each.seconds for each in items)
        for test, items in found.items()
        if {each.outcome for each in items} <= {"passed", "skipped"} and any(each.outcome == "passed" for each in items)
    }


def lines(tests: Mapping[str, float]) -> str:
    return "".join(f"{tests[test]:.1f} {test}\n" for test in sorted(tests))


def listed(text: str) -> dict[str, float]:
    return {test: float(seconds) for seconds, test in map(str.split, text.splitlines())}


def chosen(tests: Mapping[str, float], commit: str, seconds: float) -> list[str]:
    """The tests that the commit chooses, in its order, as many as fit."""
    found = []
    for test in sorted(tests, key=lambda test: _digest(commit, test)):
        if tests[test] <= seconds:
            found.append(test)
            seconds -= max(tests[test], 1.0)  # imports and fixtures take some
    return found


class OneItemEach:
    """A plugin: of each test one item is run, which the commit chooses."""

    def __init__(self, commit: str) -> None:
        self.failed: list[str] = []
        self._commit = commit

    @pytest.hookimpl(trylast=True)  # after -m
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found: dict[str, pytest.Item] = {}
        for item in sorted(items, key=lambda item: _digest(self._commit, item.nodeid)):
            found.setdefault(item.nodeid.partition("[")[0], item)
        items[:] = found.values()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


def _digest(commit: str, name: str) -> int:
    return zlib.crc32(f"{commit} {name}".encode())


def _is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    return (ROOT / path).exists() and f"def {name}(" in (ROOT / path).read_text()


def sample(seconds: float) -> int:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit = head.stdout.strip()
    tests = chosen({test: took for test, took in listed(GREEN.read_text()).items() if _is_there(test)}, commit, seconds)
    print(f"nightly tests that {commit[:12]} chooses: {len(tests)}", flush=True)
    one_each = OneItemEach(commit)
    code = pytest.main(["-m", "nightly", "--durations=5", *tests], plugins=[one_each]) if tests else 0
    if not one_each.failed:
        return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)
    print("once more:", *one_each.failed, flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", *one_each.failed], cwd=ROOT).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a sample of the nightly tests.")
    parser.add_argument("--seconds", type=float, default=90, help="what the items may take together (default 90)")
    parser.add_argument("--record", type=Path, help="write tests/nightly.txt from the report of a nightly run")
    args = parser.parse_args()
    if args.record is None:
        return sample(args.seconds)
    GREEN.write_text(lines(green(read(args.record))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
