"""Compiles Triton kernels into the cache on disk, many at once; a program of its own, without torch or a GPU.

It reads an order from its input: the GPU that kernels are for, and each kernel as Triton's own words for a launch
(`specialization_data`). Later launches find them in the cache. Kernels that other processes compile at the same time do
no harm: the cache takes whole files only.
"""

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from importlib import import_module
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.cache import triton_key

from chairlift.config.processors import num_processors


class DriverStub:
    """In the place of a GPU's driver while Triton compiles."""

    def __init__(self, target: GPUTarget, device: int = 0) -> None:
        self._target = target
        self._device = device

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._device

    def get_current_stream(self, _device: int) -> int:
        return 0

    @cached_property
    def utils(self) -> Any:
        """A C library that is compiled too."""
        from triton.backends.nvidia.driver import CudaUtils

        return CudaUtils()


def compile_kernel(data: str) -> Any:
    """The compiled kernel, which is in the cache by then."""
    module, _, name = json.loads(data)["name"].rpartition(".")
    return getattr(import_module(module), name).preload(data)


def build_launcher(data: str) -> None:
    """The C library that hands arguments to the kernel: in some versions of Triton one for each signature."""
    from triton.backends.nvidia.driver import CudaLauncher

    kernel = compile_kernel(data)
    CudaLauncher(kernel.src, kernel.metadata)


def build_utils() -> None:
    """The C library that loads kernels onto a GPU."""
    assert driver.active.utils


def main() -> None:
    order = json.load(sys.stdin)
    driver.set_active(DriverStub(GPUTarget(*order["target"])))
    kernels: list[str] = order["kernels"]
    triton_key()  # part of every key of the cache, which takes a second: once for all processes
    num_processes = min(len(kernels) + 1, num_processors())
    # Unlike multiprocessing.Pool it fails where memory is short and a process is killed.
    with ProcessPoolExecutor(num_processes, multiprocessing.get_context("fork")) as pool:
        utils = pool.submit(build_utils)
        for _ in pool.map(build_launcher, kernels):
            pass
        utils.result()


if __name__ == "__main__":
    main()
