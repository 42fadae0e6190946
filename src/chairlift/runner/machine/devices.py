"""Devices to plan for: the one here, or one known only by name or by the size of its memory.

The memory of a named GPU is as its driver reports it, a little less than advertised.
"""

from dataclasses import dataclass, replace

import torch

from chairlift.core.errors import InvalidConfig
from chairlift.runner.machine import hardware

_GIB = 2**30
_CONTEXT = round(0.5 * _GIB)  # that the driver takes of a GPU for a process


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    name: str
    kind: str  # "cpu" or "cuda"
    total: int  # bytes; of a CPU those that are free now
    others: int  # of these, in use before anything is loaded
    capability: tuple[int, int] = (0, 0)  # of a GPU
    caution: str = ""  # what to know before buying or renting one


def _gpu(name: str, gib: float, capability: tuple[int, int], caution: str = "") -> DeviceSpec:
    return DeviceSpec(name, "cuda", round(gib * _GIB), _CONTEXT, capability, caution)


_KNOWN = (
    _gpu("b200", 178.4, (10, 0)),
    _gpu("h200", 139.8, (9, 0)),
    _gpu("h100", 79.2, (9, 0)),
    _gpu("h20", 95.1, (9, 0)),
    _gpu("a100", 79.2, (8, 0)),
    _gpu("a100-40gb", 39.4, (8, 0)),
    _gpu("l40s", 44.4, (8, 9)),
    _gpu("a10", 22.1, (8, 6)),
    _gpu("a10g", 22.1, (8, 6)),
    _gpu("a6000", 47.4, (8, 6)),
    _gpu("t4", 14.6, (7, 5), "our kernels are for compute capability 8.0 and above; it needs --kernels torch"),
    _gpu("mi300x", 191.7, (9, 4), "no AMD GPU was ever tried; it needs torch for ROCm and --kernels torch"),
    _gpu("l4", 22.0, (8, 9)),
    _gpu("rtx-5090", 31.4, (12, 0)),
    _gpu("rtx-4090", 23.5, (8, 9)),
    _gpu("rtx-3090", 23.6, (8, 6)),
)
NAMES = tuple(device.name for device in _KNOWN)


def find_device(name: str, memory: int | None) -> DeviceSpec:
    """`name`: auto, cpu, cuda or one of NAMES; `memory` replaces the device's own size."""
    if name in NAMES:
        found = _KNOWN[NAMES.index(name)]
    elif name == "cuda" and memory is not None and not torch.cuda.is_available():
        found = _gpu("a GPU", 0.0, (9, 0))
    else:
        found = _here(name)
    return found if memory is None else replace(found, total=memory)


def _here(name: str) -> DeviceSpec:
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidConfig(
            "device cuda: torch sees no CUDA device here; name one that is elsewhere (--device "
            f"{', '.join(NAMES[:-1])} or {NAMES[-1]}) or give its size (--device-memory 80GB)"
        )
    device = hardware.pick_device(name)
    if device.type not in ("cpu", "cuda"):
        raise InvalidConfig(f"device {name}: plans are for a CPU or an NVIDIA GPU")
    if device.type == "cpu":
        return DeviceSpec("cpu", "cpu", hardware.free_memory(device), 0)
    total = hardware.total_memory(device)
    used = total - hardware.free_memory(device)
    return DeviceSpec(torch.cuda.get_device_name(device), "cuda", total, used, hardware.capability(device))
