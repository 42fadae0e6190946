"""Which faults are found in code, which are picked, and that planting one changes the code and nothing else."""

import ast
from pathlib import Path

import pytest

from mutants.faults import KINDS
from mutants.planting import PACKAGE, Mutant, pick, planted, watched
from mutants.rooms import PREFIXES, SHARES, room_of, shared_out
from mutants.sites import Site, sites_of

POOL = '''
class Pool:
    """At most 3 blocks."""

    def take(self, count: int) -> int:
        if self.free < count and not self.closed:
            self.grow(count + 1)
        self.free = max(0, self.free - count)
        return self.free

    async def close(self) -> bool:
        await self.drained("é", tail := [block for block in self.blocks if block])
        return (
            bool(tail)
        )
'''
LEFT_ALONE = '''
import logging
from typing import TYPE_CHECKING

SIZE = 3
logger = logging.getLogger(__name__)

class Block:
    width: int = 4

    def __repr__(self) -> str:
        return "a block" if self.width > 3 else "small"

    def check(self, number: int = 7) -> None:
        """Twice: 2."""
        if TYPE_CHECKING:
            self.width = 5
        shape: tuple[Literal[3]]
        assert number > 3, "at least 4"
        logger.info("checked", number + 1)
        name = f"{number + 1}" + "s"
        if_none = lambda: None
        raise ValueError("more than 9", number - 1)
'''


def found(source: str) -> list[Site]:
    return sites_of("src/chairlift/core/pool.py", source)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_changes_the_code_and_compiles(kind: str) -> None:
    sites = [site for site in found(POOL) if site.kind == kind]
    assert sites
    for site in sites:
        assert ast.dump(ast.parse(planted(POOL, site))) != ast.dump(ast.parse(POOL)), site


def test_the_faults_of_a_method() -> None:
    take = [(site.kind, site.before, site.after) for site in found(POOL) if site.function == "Pool.take"]
    negated = "(not (self.free < count and (not self.closed)))"
    assert take == [
        ("swapped branch", "self.free < count and not self.closed", negated),
        ("wrong bound", "self.free < count and not self.closed", "(self.free < count or not self.closed)"),
        ("off by one", "self.free < count", "(self.free <= count)"),
        ("dropped call", "self.grow(count + 1)", "None"),
        ("wrong bound", "count + 1", "(count - 1)"),
        ("off by one", "1", "(0)"),
        ("off by one", "1", "(2)"),
        ("wrong bound", "max", "min"),
        ("off by one", "0", "(-1)"),
        ("off by one", "0", "(1)"),
        ("wrong bound", "self.free - count", "(self.free + count)"),
        ("returned value", "self.free", "((self.free) + 1)"),
    ]


def test_texts_checks_and_annotations_are_left_alone() -> None:
    assert found(LEFT_ALONE) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for prefix, room in PREFIXES.items():
        if room and not prefix.endswith(".py"):
            put(tmp_path, f"{prefix}/pool.py", POOL.replace("Pool", f"Pool{prefix.replace('/', '')}"))
    return tmp_path


def put(root: Path, path: str, source: str) -> None:
    (root / PACKAGE / path).parent.mkdir(parents=True, exist_ok=True)
    (root / PACKAGE / path).write_text(source)


def names(mutants: list[Mutant]) -> list[tuple[str, str]]:
    return sorted((mutant.id, mutant.site.name) for mutant in mutants)


def test_a_seed_picks_the_same_mutants_and_another_one_others(tree: Path) -> None:
    assert len(pick(tree, 0, 30)) == 30
    assert pick(tree, 0, 30) == pick(tree, 0, 30)
    assert names(pick(tree, 0, 30)) != names(pick(tree, 1, 30))


def test_a_room_has_the_same_mutants_whichever_others_are_asked_for(tree: Path) -> None:
    text = [mutant for mutant in pick(tree, 0, 30) if mutant.room == "text"]
    assert pick(tree, 0, 30, ["text"]) == text


def test_mutants_stay_when_files_move_and_other_code_changes(tree: Path) -> None:
    before = names(pick(tree, 0, 30))
    (tree / PACKAGE / "core" / "pool.py").unlink()
    moved = POOL.replace("Pool", "Poolcore").replace("class", "def free(block: int) -> None: ...\n\nclass")
    put(tree, "core/memory/pool.py", moved)
    assert names(pick(tree, 0, 30)) == before


def test_a_file_belongs_to_the_room_of_its_longest_prefix() -> None:
    rooms = {
        path: room_of(path) for path in ("runner/cuda/products/fp8.py", "runner/cuda/step/host.py", "core/engine.py")
    }
    assert rooms == {
        "runner/cuda/products/fp8.py": None,
        "runner/cuda/step/host.py": "runner",
        "core/engine.py": "core",
    }
    assert room_of("lab/sim/runner.py") is None


@pytest.mark.parametrize("count", [1, 7, 60, 61])
def test_rooms_share_a_count_out(count: int) -> None:
    assert sum(shared_out(count, tuple(SHARES)).values()) == count


def test_watched_code_does_the_same_and_says_which_sites_run() -> None:
    source = "def least(a: int, b: int) -> int:\n    if a < b:\n        return a\n    return min(b, 5)\n"
    mutants = [Mutant(f"{i} {site.before}", "core", site) for i, site in enumerate(found(source))]
    heard: list[str] = []
    namespace: dict[str, object] = {"note": heard.append}
    exec(watched(source, mutants, "note"), namespace)
    least = namespace["least"]
    assert callable(least)
    assert least(3, 9) == 3
    assert {name.partition(" ")[2] for name in heard} == {"a < b", "a"}
    assert least(9, 6) == 5
    assert {name.partition(" ")[2] for name in heard} == {"a < b", "a", "min", "5", "min(b, 5)"}
