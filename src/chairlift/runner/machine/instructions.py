"""The instructions that native kernels use: their purpose, which of them this processor has, the cost of lacking one.

Needs no torch: `make` uses it right after an install.
"""

import platform
import shutil
from pathlib import Path
from typing import NamedTuple

from chairlift.runner.native import library


class Instruction(NamedTuple):
    name: str  # as Linux spells it
    bit: int  # of the library's features; 0: unused
    use: str
    cost: str  # of lacking it


_ALL, _QUANTISED = "all native kernels", "products of quantised weights"
_NO_KERNELS = "torch's operations take the place of the native kernels and are slower"
_BF16, _TILES = "bfloat16 as the default number type", "prompts and batches are slower"
_FLOAT32 = "float32 is the default number type, which takes twice the memory"
# The one that the kernels cannot do without is first.
_INSTRUCTIONS = {
    "x86_64": (
        Instruction("avx2", library.HAS_AVX2, _ALL, _NO_KERNELS),
        Instruction("avx512f", library.HAS_AVX512, "vectors of 16 numbers", "vectors are half as wide"),
        Instruction("avx512_vnni", library.HAS_AVX512_VNNI, _QUANTISED, f"{_QUANTISED} are made with AVX2 and slower"),
        Instruction("avx512_bf16", library.HAS_AVX512_BF16, _BF16, _FLOAT32),
        Instruction("amx_bf16", library.HAS_AMX, "products and attention in bfloat16", _TILES),
        Instruction("amx_int8", library.HAS_AMX_INT8, _QUANTISED, f"{_TILES} with quantised weights"),
    ),
    "aarch64": (
        Instruction("asimd", library.HAS_NEON, _ALL, _NO_KERNELS),
        Instruction("asimddp", library.HAS_DOTPROD, _QUANTISED, f"{_QUANTISED} are slower"),
        Instruction("i8mm", library.HAS_I8MM, _QUANTISED, f"{_TILES} with quantised weights"),
        Instruction("bf16", library.HAS_ARM_BF16, f"products in bfloat16, {_BF16}", _FLOAT32),
        Instruction("sve", 0, "", "the native kernels have no use for it"),
    ),
}  # fmt: skip
_SAME = {"amd64": "x86_64", "arm64": "aarch64"}
_COMPILERS = ("cc", "gcc", "clang")
_FOLDER = Path(library.__file__).parent


def architecture() -> str:
    name = platform.machine().lower()
    return _SAME.get(name, name)


def cpuinfo(*fields: str) -> str:
    """The value of the first line that begins with one of these; empty where the system has none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.lower().startswith(fields)), "")


def cpu_features() -> tuple[str, ...]:
    """This processor's instructions, of those known here."""
    flags = cpuinfo("flags", "features").split()
    return tuple(each.name for known in _INSTRUCTIONS.values() for each in known if each.name in flags)


def in_words() -> dict[str, str]:
    """Each instruction of this architecture: its use, or the cost of lacking it."""
    known = _INSTRUCTIONS.get(architecture())
    if known is None:
        return {architecture(): f"the native kernels {why_not_native()}"}
    return {each.name: _in_words(each) for each in known}


def _in_words(instruction: Instruction) -> str:
    if library.features() & instruction.bit:
        return f"used: {instruction.use}"
    if instruction.name not in cpu_features():
        return f"missing: {instruction.cost}"
    if not instruction.bit:
        return f"there: {instruction.cost}"
    if library.load() is None:
        return "there, but not used: there are no native kernels"
    return "there, but not used: the system does not let programs use it"


def why_not_native() -> str:
    """Why the native kernels cannot be used and what to do, in words that follow "they"; empty where they can."""
    if library.load() is not None:
        return ""
    known = _INSTRUCTIONS.get(architecture())
    if known is None:
        return f"are for {' and '.join(_INSTRUCTIONS)}, and this processor is {platform.machine()}"
    least = known[0].name
    if (found := cpu_features()) and least not in found:
        return f"need {least}, which this processor does not have"
    if any(_FOLDER.glob("_kernels*.so")):
        return "were built for another system or by another version; install chairlift again"
    if any(map(shutil.which, _COMPILERS)):
        return "were not built when chairlift was installed: there was no C compiler, or it failed; install it again"
    return "were not built, for there is no C compiler; install gcc or clang, then chairlift again"
