"""The attacks of `make chaos`, small: memory, connections and answers are judged, waits are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.certificate import needs_openssl
from fakes.patience import HANG_S

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


@needs_openssl
def test_attacks_leave_a_server_as_it_was(tiny_model: Path) -> None:
    command = [sys.executable, ROOT / "tests/stress/strangers.py", "--quick", "--model", tiny_model]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=5 * HANG_S)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("\n|") > 10  # attacks
