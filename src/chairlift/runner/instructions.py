"""The instructions that this processor has, and why the native kernels cannot be used where they cannot.

Needs no torch: an install asks here too.
"""

import platform
import shutil
from pathlib import Path

from chairlift.runner.native import library

_FEATURES = {
    "x86_64": ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    "aarch64": ("asimd", "asimddp", "i8mm", "bf16", "sve"),
}
_SAME = {"amd64": "x86_64", "arm64": "aarch64"}
_COMPILERS = ("cc", "gcc", "clang")
_FOLDER = Path(library.__file__).parent


def architecture() -> str:
    name = platform.machine().lower()
    return _SAME.get(name, name)


def cpu_features() -> tuple[str, ...]:
    """Those of this processor that matter here, in the kernel's words."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ()
    flags = next(
        (line.split(":", 1)[1].split() for line in lines if line.lower().startswith(("flags", "features"))), []
    )
    return tuple(name for names in _FEATURES.values() for name in names if name in flags)


def why_not_native() -> str:
    """Why the native kernels cannot be used and the way out, in words that follow "they"; empty where they can."""
    if library.load() is not None:
        return ""
    if architecture() not in _FEATURES:
        return f"are for {' and '.join(_FEATURES)}, and this processor is {platform.machine()}"
    least = _FEATURES[architecture()][0]
    if (found := cpu_features()) and least not in found:
        return f"need {least}, which this processor does not have"
    if any(_FOLDER.glob("_kernels*.so")):
        return "were built for another system or by another version; install chairlift again"
    if any(map(shutil.which, _COMPILERS)):
        return "were not built when chairlift was installed: there was no C compiler, or it failed; install it again"
    return "were not built, for there is no C compiler; install gcc or clang, then chairlift again"
