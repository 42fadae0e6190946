"""Which Python `make` installs with."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All that can be found on the path: the shell, and what a test puts there."""
    for name in ("sh", "echo", "test", "touch"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    return tmp_path


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(shutil.which("make")), "--silent", "-C", str(ROOT), *arguments]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True)


def chosen(folder: Path) -> str:
    return make(folder, "--eval", "chosen: ; @echo $(PYTHON)", "chosen").stdout.strip()


def test_a_python_that_is_there_but_does_not_run_is_passed_over(folder: Path) -> None:
    put(folder, "python3.12", 'echo "command not found" >&2; exit 127')
    put(folder, "python3", f'exec "{sys.executable}" "$@"')
    assert chosen(folder) == "python3"


def test_the_newest_that_runs_is_taken(folder: Path) -> None:
    for name in ("python3.12", "python3.11", "python3"):
        put(folder, name, f'exec "{sys.executable}" "$@"')
    assert chosen(folder) == "python3.12"


def test_without_a_fitting_python_make_says_how_to_name_one(folder: Path) -> None:
    put(folder, "python3", "exit 1")  # as a version that does not fit would
    done = make(folder, "serve", f"VENV={folder}/venv")
    assert done.returncode != 0
    assert "a Python 3.11 or 3.12 that runs" in done.stderr
    assert "make serve PYTHON=..." in done.stderr
