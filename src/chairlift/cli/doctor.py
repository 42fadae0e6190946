"""`chairlift doctor`: this machine, what is installed, and what a run here would use."""

import argparse
import json
import platform
from collections.abc import Mapping
from importlib import metadata

from chairlift.config.version import VERSION
from chairlift.core.errors import InvalidConfig
from chairlift.models.source import EMBEDDED_NAME, embedded_path

HELP = "show this machine, versions, and what would be used"
DESCRIPTION = "Show this machine, what is installed, and what a run here would use."

_PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "gguf", "msgspec", "pyzmq", "starlette", "uvicorn")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(options: argparse.Namespace) -> int:
    from chairlift.runner.machine import instructions

    try:
        machine, choices = _machine_facts()
    except (ImportError, OSError) as error:
        # A torch that cannot be loaded is a finding of this command, not an error.
        machine, choices = {}, {"nothing": f"torch cannot be loaded: {' '.join(str(error).split())}"}
    report = {
        "machine": machine,
        "instructions": instructions.in_words(),
        "versions": _version_facts(),
        "model": _model_facts(),
        "would use": choices,
    }
    print(json.dumps(report, indent=2) if options.json else format_report(report))
    return 0


def format_report(report: Mapping[str, Mapping[str, str]]) -> str:
    width = max(len(name) for facts in report.values() for name in facts)
    lines: list[str] = []
    for title, facts in report.items():
        lines += [title, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())]
    return "\n".join(lines)


def _machine_facts() -> tuple[dict[str, str], dict[str, str]]:
    """What is here, and what a run would use of it and why."""
    from chairlift.runner.kernels import fastest, pick_kernels, why_missing
    from chairlift.runner.machine import hardware
    from chairlift.runner.memory.gpu import SHARE
    from chairlift.runner.native.library import instruction_set

    device = hardware.pick_device("auto")
    fast = fastest(device)
    dtype = hardware.resolve_dtype("auto", device, "bfloat16")
    try:
        kernels = pick_kernels("auto", device, dtype)
        own = "our own, in Triton" if kernels == "triton" else f"our own, with {instruction_set()}"
        told = f"{kernels} ({own if kernels != 'torch' else f'the {fast} ones {why_missing(fast)}'})"
    except InvalidConfig as error:
        told = f"none: {error}"
    has_cuda, is_bf16 = device.type == "cuda", hardware.dtype_name(dtype) == "bfloat16"
    choices = {
        "device": f"{device.type} ({'torch sees it' if has_cuda else 'torch sees no CUDA device'})",
        "dtype": f"{hardware.dtype_name(dtype)} ({'in hardware' if is_bf16 else 'no bfloat16 in hardware'})",
        "kernels": told,
    }
    if has_cuda:
        choices["memory"] = f"{SHARE:g} of the GPU's in all, what is in use already included (--memory)"
    return {name: fact for name, fact in hardware.describe().items() if name not in choices}, choices


def _version_facts() -> dict[str, str]:
    own = {
        "chairlift": VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }
    return own | {name: _version(name) for name in _PACKAGES}


def _model_facts() -> dict[str, str]:
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
