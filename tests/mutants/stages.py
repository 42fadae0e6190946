"""The stages that a mutant goes through until a test fails.

    mirror -> near, for the core -> reach: tests of `make test` that run the mutant's site

Always: the mirror and near stages are what `make near` runs. Each process has a tree of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.planting import Mutant, planted
from mutants.tree import Tree
from mutants.trial import Base, Trial, attempt
from near import ALWAYS, MARKS, mirror

MIRROR, NEAR, REACH = "mirror", "near", "reach"


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    tests: tuple[str, ...]
    marks: str = MARKS


@dataclass(frozen=True, slots=True)
class Fate:
    mutant: Mutant
    stage: str | None  # that caught it
    by: str | None
    seconds: float
    num_reaching: int | None = None  # tests that run the site; None: not looked for


def near_stages(mutant: Mutant, root: Path) -> list[Stage]:
    """Before the reach: for the core also what `make near` always runs, but for the mirror."""
    mirrored = mirror(mutant.site.path, root)
    stages = [Stage(MIRROR, (mirrored,))] if mirrored else []
    if mutant.room == "core":
        ignored = (f"--ignore={mirrored}",) if mirrored else ()
        stages.append(Stage(NEAR, (*(path for path in ALWAYS if path != mirrored), *ignored)))
    return stages


def fate_of(mutant: Mutant, tree: Tree, stages: Sequence[tuple[Stage, Base]]) -> Fate:
    seconds = 0.0
    source = (tree.root / mutant.site.path).read_text()
    with tree.changed(mutant.site.path, planted(source, mutant.site)):
        for stage, base in stages:
            trial: Trial = attempt(tree, stage.tests, stage.marks, base)
            seconds += trial.seconds
            if trial.caught_by:
                return Fate(mutant, stage.name, trial.caught_by, seconds)
    return Fate(mutant, None, None, seconds)
