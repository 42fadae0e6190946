"""Facts about this machine and what is installed on it, as text to show. Imports nothing heavy and changes nothing."""

import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import psutil

from chairlift.config.source import EMBEDDED_NAME, embedded_path
from chairlift.core.errors import InvalidConfig

_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "gguf", "msgspec", "pyzmq", "starlette", "uvicorn")
_INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")


def machine_facts() -> dict[str, str]:
    memory = psutil.virtual_memory()
    info = _cpu_info()
    flags = info.get("flags", info.get("Features", "")).split()
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cores": f"{_usable_cores()} usable of {os.cpu_count()}",
        "instructions": " ".join(name for name in _INSTRUCTIONS if name in flags) or "unknown",
        "memory": f"{memory.available / 2**30:.1f} GiB free of {memory.total / 2**30:.1f} GiB",
    }


def version_facts(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    return {"python": platform.python_version()} | {name: _version(name) for name in ("chairlift", *packages)}


def model_facts() -> dict[str, str]:
    try:
        path = embedded_path()
    except InvalidConfig as error:
        return {"embedded": str(error)}
    return {"embedded": f"{EMBEDDED_NAME}, {path.stat().st_size / 2**20:.0f} MiB", "file": str(path)}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_info() -> dict[str, str]:
    """The first processor's entries in /proc/cpuinfo; empty where there is no such file."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}
