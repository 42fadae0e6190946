"""The program that compiles kernels ahead, told to compile what cannot be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.patience import HANG_S

KILLED = """
import os, signal

class Kernel:
    def preload(self, data):
        os.kill(os.getpid(), signal.SIGKILL)

kernel = Kernel()
"""


@pytest.mark.slow
def test_a_process_that_is_killed_fails_the_compiler_and_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "too_large.py").write_text(KILLED)
    order = {"target": ["cuda", 90, 32], "kernels": [json.dumps({"name": "too_large.kernel"})] * 3}
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "chairlift.runner.cuda.start.compiler"], env=environment, input=json.dumps(order),
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode != 0
    assert "terminated" in done.stderr.strip().splitlines()[-1]
