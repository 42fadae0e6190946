"""The CPU that a table was made on: architecture, name, cores and the instruction sets that decide about speed."""

import os
import platform
from pathlib import Path

ARM_PARTS = {"0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1", "0xd49": "Neoverse-N2", "0xd4f": "Neoverse-V2"}
TELLING = (
    "avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8",
    "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip


def describe() -> dict[str, str]:
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    facts = {key.strip().lower(): value.strip() for key, _, value in reversed(lines)}  # those of the first core
    part = facts.get("cpu part", "")
    has = set((facts.get("flags") or facts.get("features", "")).split())
    return {
        "machine": platform.machine(),
        "cpu": facts.get("model name") or ARM_PARTS.get(part, f"CPU part {part}"),
        "cores": str(os.cpu_count()),
        "instructions": " ".join(name for name in TELLING if name in has),
    }
