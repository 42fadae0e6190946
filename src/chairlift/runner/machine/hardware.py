"""What the machine has: devices, number types, threads and free memory. Changes nothing."""

import platform
from contextlib import suppress
from pathlib import Path

import psutil
import torch

from chairlift.config.processors import num_processors
from chairlift.config.settings import MINDSPORE_DEVICES, UNTRIED_DEVICES
from chairlift.core.errors import InvalidConfig
from chairlift.runner.machine.instructions import cpu_features, cpuinfo

_GIB = 2**30
_CGROUP = Path("/sys/fs/cgroup")
_DTYPES = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64,
}  # fmt: skip


def pick_device(name: str) -> torch.device:
    """Where torch computes; with MindSpore the host, where tokens are chosen."""
    if name in MINDSPORE_DEVICES:
        return torch.device("cpu")
    if name in UNTRIED_DEVICES:
        found = torch.accelerator.current_accelerator(check_available=True)
        if found is None or found.type != name:
            raise InvalidConfig(f"device {name}: torch sees none here; use --device cpu")
        return found
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise InvalidConfig("device cuda: torch sees no CUDA device here; use --device cpu")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and has_cuda) else "cpu")


def resolve_dtype(name: str, device: torch.device, stored: str, has_bf16: bool | None = None) -> torch.dtype:
    """The number type to compute in: as named, or the device's fast one for weights stored so. `has_bf16`: of a GPU
    that is not here."""
    if name == "float64" and device.type == "mps":
        raise InvalidConfig("dtype float64: the device mps does not have it; use --dtype float32 or --device cpu")
    if name != "auto":
        return _DTYPES[name]
    if device.type == "cpu":  # without products of bfloat16 in hardware float32 is faster
        return torch.bfloat16 if {"avx512_bf16", "amx_bf16", "bf16"} & set(cpu_features()) else torch.float32
    if has_bf16 is None:
        has_bf16 = device.type != "cuda" or torch.cuda.is_bf16_supported()
    return torch.float16 if stored == "float16" or not has_bf16 else torch.bfloat16


def num_cpus() -> int:
    """Cores this process may use: its affinity, the container's share, and no second thread of a core."""
    allowed = num_processors()
    return min(allowed, psutil.cpu_count(logical=False) or allowed)


def free_memory(device: torch.device) -> int:
    """Bytes that can be taken now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        with suppress(RuntimeError):  # a device that shares the host's memory need not know
            return int(torch.accelerator.get_memory_info(device)[0])
    return min(int(psutil.virtual_memory().available), _container_room())


def total_memory(device: torch.device) -> int:
    """Bytes of a GPU's memory."""
    return int(torch.cuda.mem_get_info(device)[1])


def num_sharing(device: torch.device, num_ranks: int) -> int:
    """Ranks that share the memory of such a device."""
    return -(-num_ranks // max(1, torch.cuda.device_count())) if device.type == "cuda" else num_ranks


def capability(device: torch.device) -> tuple[int, int]:
    """The generation of a GPU: (8, 0) is Ampere, (9, 0) Hopper."""
    return torch.cuda.get_device_capability(device)


def describe() -> dict[str, str]:
    """The machine, for people to read."""
    device = pick_device("auto")
    facts = {
        "cpu": cpuinfo("model name") or platform.machine(),
        "cores": str(num_cpus()),
        "free memory": f"{free_memory(torch.device('cpu')) / _GIB:.1f} GiB",
        "torch": torch.__version__,
    }
    for index in range(torch.cuda.device_count()):
        gpu = torch.device("cuda", index)
        free, total = free_memory(gpu) / _GIB, total_memory(gpu) / _GIB
        facts[f"gpu {index}"] = f"{torch.cuda.get_device_name(index)}, {total:.1f} GiB, {free:.1f} GiB free"
    if not torch.cuda.device_count():
        facts["gpu"] = "none"
    facts["device"] = str(device)
    facts["dtype"] = dtype_name(resolve_dtype("auto", device, "bfloat16"))
    return facts


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _container_room() -> int:
    """What the container's memory limit leaves; very large without one."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(stat.get("inactive_file", 0)))  # file pages can be dropped
    except (OSError, ValueError):
        return 1 << 60
