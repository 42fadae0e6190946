"""Builds the native kernels: a plain C library beside `chairlift/runner/native/ops.py`, loaded with ctypes.

It is optional: without a compiler the install still works and torch's operations are used, unless REQUIRE_KERNELS is
set. It needs no Python headers and serves every Python, so one wheel for each processor is enough.
"""

import os
import re
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

NATIVE = Path("src/chairlift/runner/native")
RELATIVE = r"\((?!\w+:)[^()\s]+\)"


class AnyPythonWheel(bdist_wheel):
    """Not `abi3`, which a Python without the global lock refuses."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def page(readme: str) -> str:
    """The README for an index, which has none of the files beside it: links to these become text, pictures go."""
    return re.sub(rf"\[([^\]]+)\]{RELATIVE}", r"\1", re.sub(rf"!\[[^\]]*\]{RELATIVE}\n*", "", readme))


kernels = Extension(
    "chairlift.runner.native._kernels",
    sources=[str(path) for path in sorted(NATIVE.glob("*.c"))],
    depends=[str(path) for path in sorted([*NATIVE.glob("*.h"), *NATIVE.glob("*.inc")])],
    # The instruction sets beyond the baseline are named function by function and chosen at run time.
    extra_compile_args=[
        "-std=gnu11",
        "-O3",
        "-ffp-contract=off",  # kernels.h says why
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fvisibility=hidden",
        "-pthread",
        "-Wall",
        "-Wextra",
    ],
    extra_link_args=["-pthread"],
    libraries=["m"],
    py_limited_api=True,  # for a file name without a Python's version
    optional="REQUIRE_KERNELS" not in os.environ,
)

setup(
    ext_modules=[kernels],
    cmdclass={"bdist_wheel": AnyPythonWheel},
    long_description=page(Path("README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
