"""docs/read-the-core.md is true: its scheduler runs, its files are there, and what it breaks is noticed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/read-the-core.md").read_text()
ENGINE = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
(PRINTED,) = re.findall(r"^It prints:\n\n```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
BROKEN = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE)


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "small_engine.py"
    path.write_text(script)
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    return subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True)


def test_its_scheduler_makes_the_tokens_of_each_request_alone(tmp_path: Path) -> None:
    done = run(ENGINE, tmp_path)
    assert (done.stdout, done.stderr) == (PRINTED, "")
    assert len([line for line in ENGINE.splitlines() if line]) <= 150


@pytest.mark.parametrize(("line", "said"), BROKEN)
def test_the_ledger_notices_a_line_that_is_missing(line: str, said: str, tmp_path: Path) -> None:
    kept = [each for each in ENGINE.splitlines() if each.strip() != line]
    assert len(kept) == len(ENGINE.splitlines()) - 1
    assert run("\n".join(kept), tmp_path).stderr.splitlines()[-1] == f"AssertionError: {said}"


def test_its_files_are_there() -> None:
    files = re.findall(r"`(core/[\w/]+\.py)`", PAGE)
    assert len(files) > 10
    for file in files:
        assert (ROOT / "src/chairlift" / file).is_file(), file
