"""The attacks of `make chaos`, small: memory, connections and answers are judged, and whether the server freezes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.certificate import needs_openssl
from fakes.patience import HANG_S

ROOT = Path(__file__).parents[2]
BODIES = ("a log that is not read", "dear bodies", "hostile adapters")


def attack(model: Path, *options: object) -> str:
    command = [sys.executable, ROOT / "tests/stress/strangers.py", "--quick", "--model", model, *map(str, options)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=5 * HANG_S)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
def test_bodies_of_which_one_stopped_a_server_leave_it_as_it_was(tiny_model: Path) -> None:
    assert attack(tiny_model, "--share", 0.03, "--only", *BODIES).count("\n|") > len(BODIES)


@needs_openssl
@pytest.mark.nightly
def test_attacks_leave_a_server_as_it_was(tiny_model: Path) -> None:
    assert attack(tiny_model).count("\n|") > 20  # attacks
