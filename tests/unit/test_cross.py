"""What `make cross` runs still fits the kernels, and a compiler that fails makes it fail."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[1] / "native"
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_the_program_calls_the_kernels_as_they_are_declared() -> None:
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(NATIVE / "sets.c")]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_a_build_that_fails_is_not_passed_over() -> None:
    found = subprocess.run([str(NATIVE / "cross.sh")], env={**os.environ, "CC": "false"}, capture_output=True)
    assert found.returncode != 0
