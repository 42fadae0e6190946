"""Which tests run which sites: one run of `make test`'s tests on a tree whose sites are watched.

A site that runs while a fixture is made, such as a server that tests share, is reached by all tests with that fixture.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from shutil import copy2

from mutants.planting import Mutant, watched
from mutants.tree import Tree
from mutants.trial import Base

MARKS = "not nightly and not gpu"  # of `make test`
_CALL = "__import__('reached').reached"


@dataclass(frozen=True, slots=True)
class Reach:
    tests: Mapping[str, tuple[str, ...]]  # by mutants' ids, the quickest first
    bases: Mapping[str, Base]


def find_reach(tree: Tree, mutants: Sequence[Mutant], notes: Path) -> Reach:
    watch(tree, mutants)
    names = {"REACHED": notes / "reached", "OUTCOMES": notes / "outcomes", "FIXTURES": notes / "fixtures"}
    environment = tree.environment() | {name: str(path) for name, path in names.items()}
    command = [sys.executable, "-m", "pytest", "-n", "3", "--dist", "worksteal", "-q", "--tb=no", "-p", "mutants.noted",
               "-p", "no:cacheprovider", "-m", MARKS]  # fmt: skip
    subprocess.run(command, cwd=tree.root, env=environment, stdout=sys.stderr)
    seconds: dict[str, float] = defaultdict(float)
    failing = set()
    for test, duration, outcome in (line.split("\t") for line in names["OUTCOMES"].read_text().splitlines()):
        seconds[test] += float(duration)
        failing |= {test} if outcome == "failed" else set()
    lines = names["REACHED"].read_text().splitlines() if names["REACHED"].exists() else []
    found = tests_of(lines, json.loads(names["FIXTURES"].read_text()))
    tests = {mutant: tuple(sorted(found[mutant] - failing, key=seconds.__getitem__)) for mutant in found}
    return Reach(tests, {mutant: Base(sum(map(seconds.__getitem__, tests[mutant])), ()) for mutant in tests})


def watch(tree: Tree, mutants: Sequence[Mutant]) -> None:
    copy2(Path(__file__).parent / "reached.py", tree.root / "src" / "reached.py")
    for path, of_file in groupby(sorted(mutants, key=_path), key=_path):
        tree.write(path, watched((tree.root / path).read_text(), [*of_file], _CALL))


def _path(mutant: Mutant) -> str:
    return mutant.site.path


def tests_of(lines: Iterable[str], fixtures: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """The tests of each mutant, of lines that `reached` wrote."""
    sharing: dict[str, set[str]] = defaultdict(set)
    for test, wide in fixtures.items():
        for fixture in wide:
            sharing[fixture].add(test)
    found: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        mutant, _, current = line.partition("\t")
        test, _, phase = current.rpartition(" ")
        if test in fixtures:
            found[mutant] |= {test}.union(*(sharing[fixture] for fixture in fixtures[test] if phase == "(setup)"))
    return dict(found)


def listed(tests: Iterable[str], file: Path) -> str:
    """pytest's argument for more tests than a command line holds."""
    file.write_text("".join(f"{test}{os.linesep}" for test in tests))
    return f"@{file}"
