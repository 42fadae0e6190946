"""The library beside the rest of the process: one OpenMP runtime, forks, callers on several threads."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.ops import Norm

pytestmark = pytest.mark.skipif(not available(), reason="the kernels are not built or not for this processor")


def norm_of(ops: NativeOps, x: torch.Tensor) -> torch.Tensor:
    return ops.norm(x, Norm(torch.ones(x.shape[1]), 1e-5))


def test_torch_s_openmp_runtime_stays_the_only_one() -> None:
    norm_of(NativeOps(2), torch.randn(100, 1000))
    torch.randn(500, 500) @ torch.randn(500, 500)
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    assert len({name for name in mapped if "libgomp" in name or "libiomp" in name or "libomp" in name}) == 1


def test_a_forked_child_computes_with_threads_of_its_own() -> None:
    program = """
import os, torch
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.ops import Norm
ops, x = NativeOps(3), torch.randn(100, 2000)
before = ops.norm(x, Norm(torch.ones(2000), 1e-5))
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(ops.norm(x, Norm(torch.ones(2000), 1e-5)), before) else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, env=environment, timeout=60)


def test_callers_on_several_threads_do_not_disturb_each_other() -> None:
    ops = NativeOps(2)
    inputs = [torch.randn(64, 3000) for _ in range(4)]
    expected = [norm_of(ops, x) for x in inputs]
    wrong: list[int] = []

    def call(i: int) -> None:
        if not all(torch.equal(norm_of(ops, inputs[i]), expected[i]) for _ in range(50)):
            wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_instruction_set_has_a_name() -> None:
    assert library.instruction_set() in ("amx", "avx512", "avx2", "neon")
