"""The GPU that kernels are compiled for.

Without torch: kernels are compiled by processes that do not wait for it.
"""

from triton import knobs
from triton.runtime import driver

_SHARED_KB = {80: 163, 87: 163, 90: 227, 100: 227, 103: 227}  # CUDA's table; the others have 99


def arch() -> int:
    """90 is Hopper; 0 is no GPU that CUDA knows, or none at all, where kernels are interpreted."""
    if knobs.runtime.interpret:
        return 0
    target = driver.active.get_current_target()
    return int(target.arch) if target.backend == "cuda" else 0


def shared_memory() -> int:
    """Bytes that one program may have."""
    return _SHARED_KB.get(arch(), 99) << 10


def stages_ahead(most: int, stage_bytes: int) -> int:
    """Stages of so many bytes that a product reads ahead, as far as there is memory for them. No bit depends on it."""
    return 1 if knobs.runtime.interpret else max(1, min(most, shared_memory() // stage_bytes))
