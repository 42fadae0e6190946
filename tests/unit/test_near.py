"""Which tests `make near` finds near a change."""

import shutil
import subprocess
from pathlib import Path

import pytest

from near import ALWAYS, beginning, changed_since, mirror, paths_near

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ("core/memory/pool.py", "tests/unit/core/memory"),
        ("core/prefill.py", "tests/unit/core"),
        ("runner/cuda/step/host.py", "tests/unit/runner/cuda/step"),
        ("runner/native/linear.c", "tests/unit/runner/native"),
        ("server/page/static/chat/chat.js", "tests/unit/server"),
        ("build.py", "tests/unit/test_build.py"),
        ("llm.py", None),
        ("nowhere/file.py", None),
    ],
)
def test_a_source_file_has_the_nearest_mirrored_folder(source: str, tests: str | None) -> None:
    assert mirror(f"src/chairlift/{source}") == tests


def test_changed_tests_run_themselves_and_nothing_runs_twice() -> None:
    changed = ["tests/unit/core/test_limits.py", "tests/simulation/test_small_worlds.py", "tests/unit/test_gone.py",
               "tests/fakes/worlds/world.py", "src/chairlift/core/engine.py", "docs/tour.md"]  # fmt: skip
    assert paths_near(changed, ROOT) == sorted([*ALWAYS, "tests/simulation/test_small_worlds.py"])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    for name in ("first", "second"):
        commit(tmp_path, name)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, name: str) -> str:
    (folder / name).write_text(name)
    git(folder, "add", name)
    git(folder, "commit", "--quiet", "--message", name)
    return git(folder, "rev-parse", "HEAD")


def test_a_branch_begins_where_it_left_main_and_new_files_count(repository: Path) -> None:
    git(repository, "switch", "--quiet", "--create", "feature")
    commit(repository, "third")
    commit(repository, "fourth")
    (repository / "not added").write_text("")
    assert changed_since(beginning(repository), repository) == ["fourth", "not added", "third"]


def test_main_begins_at_the_last_push_and_else_at_the_commit_before(repository: Path, tmp_path: Path) -> None:
    assert changed_since(beginning(repository), repository) == ["second"]
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(clone))
    commit(clone, "third")
    commit(clone, "fourth")
    assert changed_since(beginning(clone), clone) == ["fourth", "third"]


def test_an_unknown_commit_is_named(repository: Path) -> None:
    with pytest.raises(SystemExit, match="knows no commit v9; name another with BASE=REV"):
        changed_since("v9", repository)
