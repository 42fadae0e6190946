"""Where the seconds of a run of pytest went: the slowest tests, and the items and seconds of each folder.

python tests/timings.py build/test.xml
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

NUM_SLOWEST = 20


@dataclass(frozen=True, slots=True)
class Timed:
    """An item with the time of its fixtures: a server that several tests share counts for the first."""

    path: str
    name: str
    seconds: float
    outcome: str  # passed, skipped, failed or error

    @property
    def test(self) -> str:
        return f"{self.path}::{self.name.partition('[')[0].partition('@')[0]}"

    @property
    def folder(self) -> str:
        return "/".join(self.path.split("/")[1:-1][:2])


def read(report: Path) -> Iterator[Timed]:
    """The items of pytest's `--junit-xml`."""
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in ("skipped", "failure", "error")), "passed")
        path = case.attrib["classname"].replace(".", "/") + ".py"  # of a file that was skipped as a whole, empty
        yield Timed(path, case.attrib["name"], float(case.attrib["time"]), outcome)


def table(timed: Sequence[Timed]) -> str:
    slowest = sorted(timed, key=lambda each: -each.seconds)[:NUM_SLOWEST]
    seconds, items = defaultdict[str, float](float), defaultdict[str, int](int)
    for each in timed:
        seconds[each.folder] += each.seconds
        items[each.folder] += 1
    lines = [f"{each.seconds:8.1f} s  {each.path}::{each.name}" for each in slowest]
    lines += ["", "   seconds   items  folder"]
    lines += [
        f"{seconds[each]:10.0f} {items[each]:7}  {each}" for each in sorted(seconds, key=lambda key: -seconds[key])
    ]
    return "\n".join([*lines, f"{sum(seconds.values()):10.0f} {len(timed):7}  all"])


if __name__ == "__main__":
    print(table([*read(Path(sys.argv[1]))]))
