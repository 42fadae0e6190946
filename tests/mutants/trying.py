"""Tries mutants: first the tests near them, then those that reach them.

Always: work at the same time is on different trees.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from mutants.planting import Mutant
from mutants.reach import MARKS, find_reach, listed
from mutants.stages import REACH, Fate, Stage, fate_of, near_stages
from mutants.tree import Tree
from mutants.trial import Base, measure

T = TypeVar("T")
R = TypeVar("R")


class Jobs:
    """The trees, and as many threads."""

    def __init__(self, origin: Path, folder: Path, num_jobs: int) -> None:
        self.origin, self.folder = origin, folder
        self._free: SimpleQueue[Tree] = SimpleQueue()
        for i in range(num_jobs):
            self._free.put(Tree(origin, folder / f"tree{i}"))
        self._pool = ThreadPoolExecutor(num_jobs)

    def each(self, work: Callable[[T, Tree], R], items: Iterable[T]) -> Iterable[R]:
        """Results in the order of the items."""
        return self._pool.map(partial(self._on_a_tree, work), items)

    def _on_a_tree(self, work: Callable[[T, Tree], R], item: T) -> R:
        tree = self._free.get()
        try:
            return work(item, tree)
        finally:
            self._free.put(tree)


def try_near(jobs: Jobs, mutants: Sequence[Mutant], tell: Callable[[Fate], None]) -> None:
    stages = {mutant.id: near_stages(mutant, jobs.origin) for mutant in mutants}
    distinct = [*dict.fromkeys(stage for of_mutant in stages.values() for stage in of_mutant)]
    bases: dict[Stage, Base] = {}
    for stage, base in zip(distinct, jobs.each(_measure, distinct), strict=True):
        bases[stage] = base
        failing = f"; without {', '.join(base.failing)}, which fail anyway" if base.failing else ""
        print(f"{' '.join(stage.tests)}: {base.seconds:.0f} s{failing}", flush=True)

    def attempt(mutant: Mutant, tree: Tree) -> Fate:
        return fate_of(mutant, tree, [(stage, bases[stage]) for stage in stages[mutant.id]])

    for fate in jobs.each(attempt, mutants):
        tell(fate)


def _measure(stage: Stage, tree: Tree) -> Base:
    return measure(tree, stage.tests, stage.marks)


def try_reach(jobs: Jobs, mutants: Sequence[Mutant], tell: Callable[[Fate], None]) -> None:
    """The tests of `make test` run once with all sites watched; each mutant then meets those that ran its site."""
    if not mutants:
        return
    notes = jobs.folder / "notes"
    notes.mkdir()
    reach = find_reach(Tree(jobs.origin, jobs.folder / "watched"), mutants, notes)

    def attempt(mutant: Mutant, tree: Tree) -> Fate:
        tests = reach.tests.get(mutant.id, ())
        if not tests:
            return Fate(mutant, None, None, 0.0, num_reaching=0)
        stage = Stage(REACH, (listed(tests, notes / mutant.id),), MARKS)
        fate = fate_of(mutant, tree, [(stage, reach.bases[mutant.id])])
        return Fate(mutant, fate.stage, fate.by, fate.seconds, len(tests))

    for fate in jobs.each(attempt, mutants):
        tell(fate)
