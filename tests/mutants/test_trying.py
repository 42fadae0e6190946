"""That tests catch a mutant, or reach it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mutants.planting import Mutant
from mutants.reach import tests_of as reaching
from mutants.sites import sites_of
from mutants.stages import Stage, fate_of, near_stages
from mutants.tree import Tree
from mutants.trial import Base

ROOT = Path(__file__).parents[2]
SOURCE = "def free(held: int) -> int:\n    while held > 3:\n        held -= 1\n    return held\n"
TEST = "from pool import free\n\ndef test_three_are_free():\n    assert free(4) == 3\n"


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_the_first_test_that_fails_catches_a_mutant_and_the_copy_is_as_before(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    (origin / "src").mkdir(parents=True)
    (origin / "src" / "pool.py").write_text(SOURCE)
    (origin / "test_pool.py").write_text(TEST)
    subprocess.run(["git", "init", "-q"], cwd=origin, check=True)
    tree = Tree(origin, tmp_path / "copy")
    site = next(site for site in sites_of("src/pool.py", SOURCE) if site.kind == "returned value")
    fate = fate_of(Mutant("1", "core", site), tree, [(Stage("mirror", ("test_pool.py",)), Base(1.0, ()))])
    assert (fate.stage, fate.by) == ("mirror", "test_pool.py::test_three_are_free")
    assert (tree.root / "src" / "pool.py").read_text() == SOURCE


def test_a_mutant_of_the_core_meets_all_of_make_near_and_others_their_mirror() -> None:
    site = sites_of("src/chairlift/core/memory/pool.py", SOURCE)[0]
    stages = near_stages(Mutant("1", "core", site), ROOT)
    mirror = "tests/unit/core/memory"
    assert [stage.tests for stage in stages] == [
        (mirror,),
        ("tests/property", "tests/golden", "tests/unit/core", f"--ignore={mirror}"),
    ]
    assert near_stages(Mutant("1", "text", site), ROOT) == stages[:1]


def test_what_runs_while_a_shared_fixture_is_made_is_reached_by_all_tests_that_have_it() -> None:
    fixtures = {"a.py::one": ["e2e::server"], "b.py::two": ["e2e::server"], "c.py::three": []}
    assert reaching(["x\ta.py::one (setup)", "y\ta.py::one (call)"], fixtures) == {
        "x": {"a.py::one", "b.py::two"},
        "y": {"a.py::one"},
    }
    assert reaching(["x\t", "x\tc.py::three (setup)"], fixtures) == {"x": {"c.py::three"}}
