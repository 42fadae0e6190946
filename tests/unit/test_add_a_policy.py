"""docs/add-a-policy.md is true: its policy is written, tried, registered and tested as the page says."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chairlift.cli.inputs.flags import settings_from
from chairlift.cli.main import _parser, main
from chairlift.config.options.rules import RULE_KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/add-a-policy.md").read_text()
PATCHED = ("src/chairlift/core/policies/known.py", "tests/fakes/worlds/draws.py")
POLICY, TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
DIFFS = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [shlex.split(line) for line in re.findall(r"^    (chairlift .*)$", PAGE, re.MULTILINE)]
(TESTING,) = (shlex.split(line) for line in re.findall(r"^    (pytest .*)$", PAGE, re.MULTILINE))

# Of these tests, those that a new policy changes, and two of many random worlds; the others are the same without it.
CHANGED = "test_policies.py or test_rules.py or short-prompts or alone[0] or alone[1] or a_new_policy"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the page's policy in it; its module is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "short_prompts.py").write_text(POLICY)
    yield tmp_path
    sys.modules.pop("short_prompts", None)


def command(name: str) -> list[str]:
    (found,) = (arguments for arguments in COMMANDS if arguments[1] == name)
    return found[1:]


def test_the_simulator_takes_the_policy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("simulate")) == 0
    assert "200 finished" in capsys.readouterr().out


def test_compare_shows_that_the_policy_and_its_parameter_matter(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command("compare")) == 0
    shown = capsys.readouterr()
    _, *rows = shown.out.splitlines()
    assert [row.split()[0] for row in rows] == command("compare")[-1].partition("=")[2].split(",")
    assert len({tuple(row.split()[1:]) for row in rows}) == len(rows)
    assert not shown.err  # a rule that failed would be told here


def test_the_server_takes_the_policy(folder: Path) -> None:
    *_, given = command("serve")
    assert settings_from(_parser().parse_args(command("serve"))).policy == given


@pytest.mark.slow
def test_two_files_make_it_built_in_and_the_tests_find_it(tmp_path: Path) -> None:
    skipped = shutil.ignore_patterns("__pycache__", "*.so", "data", "e2e", "gpu")
    for part in ("src", "tests", "examples"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "src/chairlift/core/policies/short_prompts.py").write_text(POLICY)
    for file, diff in zip(PATCHED, DIFFS, strict=True):
        (tmp_path / file).write_text(_patched((tmp_path / file).read_text(), diff))
    (tmp_path / "tests/unit/core/test_policies.py").write_text(TEST)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    listed = _run([sys.executable, "-m", "chairlift", "policies"], tmp_path, environment)
    assert re.search(r"^  short-prompts +Short prompts first; .*\(token_s=0\.01\)$", listed, re.MULTILINE)
    tested = _run(
        [sys.executable, "-m", *TESTING, "-k", CHANGED, "-p", "no:cacheprovider", "-vv"], tmp_path, environment
    )
    passed = re.findall(r"::(\w+)(?:\[.*\])? PASSED", tested)
    assert set(passed) >= {
        *re.findall(r"def (test_\w+)", TEST),
        "test_a_step_costs_the_same_per_request_however_many_wait",
        "test_every_known_rule_is_made_by_its_name",
        "test_every_parameter_of_a_rule_is_varied",
        "test_so_it_does_under_every_combination_of_rules",
    }


@pytest.mark.parametrize("option", RULE_KINDS)
def test_every_rule_has_a_row_in_the_docs(option: str) -> None:
    page = (ROOT / "docs/policies.md").read_text()
    section = page.partition(f"## `--{option}`")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(RULE_KINDS[option].known)


def _patched(text: str, diff: str) -> str:
    """Each added line goes below the line that the diff shows above it."""
    lines, place = text.splitlines(), 0
    for line in diff.splitlines():
        if line.startswith("+"):
            place += 1
            lines.insert(place, line[1:])
        else:
            place = lines.index(line[1:])
    return "\n".join(lines) + "\n"


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
