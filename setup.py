"""Builds the native kernels: a plain C library beside `chairlift/runner/native/ops.py`, loaded with ctypes.

It is optional: without a compiler the install still works and torch's operations are used. It needs no Python headers
and serves every Python version, hence the stable-ABI name and wheel tag.
"""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/chairlift/runner/native")

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
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[kernels], options={"bdist_wheel": {"py_limited_api": "cp311"}})
