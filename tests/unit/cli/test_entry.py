"""The first lines of every command: a signal that comes while it imports, or after its end, leaves no traceback, and
neither does a package that is not installed."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fakes.patience import HANG_S

_ROOT = Path(__file__).parents[3]
# Python runs it before everything else. A signal comes when a module is looked for, or when the interpreter shuts down.
_SITE = """
import atexit, os, signal, sys

# Not inherited from the tests, which may run in the background.
signal.signal(signal.SIGINT, signal.SIG_IGN if os.environ.get("IGNORES") else signal.default_int_handler)
where, number = os.environ["WHERE"], int(os.environ["NUMBER"])


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == where:
            os.kill(os.getpid(), number)


if where == "atexit":
    atexit.register(lambda: os.kill(os.getpid(), number))
sys.meta_path.insert(0, Finder)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script that an installer makes for the entry point."""
    with (_ROOT / "pyproject.toml").open("rb") as file:
        module, _, name = tomllib.load(file)["project"]["scripts"]["chairlift"].partition(":")
    path = tmp_path / "chairlift"
    path.write_text(f"import sys\nfrom {module} import {name}\nif __name__ == '__main__':\n    sys.exit({name}())\n")
    return path


def run(how: list[str], folder: Path, number: int, where: str, *arguments: str) -> tuple[int, str]:
    (folder / "sitecustomize.py").write_text(_SITE)
    path = f"{folder}:{_ROOT / 'src'}"
    environment = os.environ | {"PYTHONPATH": path, "WHERE": where, "NUMBER": str(int(number))}
    command = [sys.executable, *how, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, cwd=folder)
    return done.returncode, done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("where", ["chairlift.cli.main", "argparse", "chairlift.cli.verify", "torch"])
@pytest.mark.parametrize("is_script", [True, False])
def test_ctrl_c_during_the_imports_is_130_without_a_word(
    tmp_path: Path, script: Path, where: str, is_script: bool
) -> None:
    how = [str(script)] if is_script else ["-m", "chairlift"]
    assert run(how, tmp_path, signal.SIGINT, where, "doctor") == (130, "")


def test_ctrl_c_while_the_interpreter_shuts_down_is_130_without_a_word(tmp_path: Path, script: Path) -> None:
    assert run([str(script)], tmp_path, signal.SIGINT, "atexit", "policies") == (130, "")
    assert run([str(script)], tmp_path, signal.SIGINT, "atexit", "--version") == (130, "")


SERVER_PARTS = [
    "chairlift.cli.main",
    pytest.param("chairlift.cli.verify", marks=pytest.mark.slow),
    pytest.param("chairlift.serving.parent", marks=pytest.mark.slow),
    "chairlift.live.processes.supervisor",
]


@pytest.mark.parametrize("where", SERVER_PARTS)
def test_a_server_that_has_not_begun_ends_at_a_signal_without_a_word(tmp_path: Path, script: Path, where: str) -> None:
    arguments = "serve", "--port", "0"
    assert run([str(script)], tmp_path, signal.SIGTERM, where, *arguments) == (0, "")
    assert run([str(script)], tmp_path, signal.SIGINT, where, *arguments) == (130, "")


def test_sigterm_ends_other_commands_as_it_ends_any_program(tmp_path: Path, script: Path) -> None:
    assert run([str(script)], tmp_path, signal.SIGTERM, "chairlift.cli.main", "policies") == (-signal.SIGTERM, "")


@pytest.mark.parametrize("where", ["chairlift.cli.verify", "atexit"])
def test_a_process_started_to_ignore_ctrl_c_ignores_it(
    tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("IGNORES", "yes")
    assert run([str(script)], tmp_path, signal.SIGINT, where, "policies") == (0, "")


@pytest.mark.parametrize("arguments", [("--version",), ("policies",), ("serve", "--port", "0")])
def test_a_package_that_is_not_installed_is_one_line(tmp_path: Path, script: Path, arguments: tuple[str, ...]) -> None:
    assert run_without(tmp_path, "yaml", str(script), *arguments) == (
        2,
        "chairlift: error: the module yaml is not installed, which chairlift needs: pip install chairlift, without "
        "--no-deps\n",
    )


@pytest.mark.slow
def test_a_server_whose_processes_miss_a_package_ends_with_one_line(tmp_path: Path, script: Path) -> None:
    code, said = run_without(tmp_path, "torch", str(script), "serve", "--port", "0")
    assert code == 2
    starting, error = said.splitlines()
    assert starting.startswith("chairlift: starting ")
    assert error.startswith("chairlift: error: the module torch is not installed")


def test_a_module_of_ours_that_is_missing_shows_where(tmp_path: Path, script: Path) -> None:
    code, said = run_without(tmp_path, "chairlift.cli.verify", str(script), "--version")
    assert code == 1
    assert said.startswith("Traceback")


def run_without(folder: Path, module: str, *command: str) -> tuple[int, str]:
    (folder / "sitecustomize.py").write_text(f"import sys\n\nsys.modules[{module!r}] = None\n")
    environment = os.environ | {"PYTHONPATH": f"{folder}:{_ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=HANG_S, cwd=folder
    )
    return done.returncode, done.stderr


def test_the_entry_imports_no_other_part() -> None:
    program = "import sys, chairlift.__main__; print([name for name in sys.modules if name.startswith('chairlift.')])"
    environment = os.environ | {"PYTHONPATH": str(_ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == "['chairlift.__main__']\n"
