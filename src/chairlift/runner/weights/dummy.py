"""Random weights of a model's shape, for measuring without a download.

Always: norms multiply by 1; all values are the same on every device, rounded to the type asked for. A tensor is valid
until the next is read: all share one buffer, as the pieces of freed ones would count as weights and keep memory from
being returned.
"""

import zlib
from collections.abc import Collection

import torch
from torch import Tensor

from chairlift.models.shards import Cut
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import MXFP4_GROUP, norm_parts
from chairlift.runner.weights.mxfp4 import MXFP4
from chairlift.runner.weights.source import Stored, part_of

_STD = 0.02
_SCALE = 127 - 7  # of MXFP4: 2 to the power of -7
_OF_EXPERTS = 3  # dimensions
# Normal numbers are slow to draw: a large matrix repeats a stretch whose odd length no row width divides.
_DRAWN = (1 << 22) + 15
_CPU = torch.device("cpu")


class DummyTensors:
    def __init__(
        self, config: ModelConfig, dtype: torch.dtype = torch.float32, device: torch.device = _CPU, seed: int = 0
    ) -> None:
        """Tensors are made in this type, on this device."""
        self._seed, self._has_four_bits = seed, config.four_bits is not None
        self._norms = {part.name: 1.0 - part.offset for part in norm_parts(config)}
        drawn = torch.empty(_DRAWN).normal_(0.0, _STD, generator=torch.Generator().manual_seed(seed))
        self._drawn = drawn.to(device, dtype)
        self._buffer = self._drawn[:0]

    @property
    def names(self) -> Collection[str]:
        return ()

    def file_of(self, name: str) -> str:
        return "dummy weights"

    def read(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Tensor:
        drawn = self._drawn
        if (weight := self._norms.get(name)) is not None:
            return torch.full(shape, weight, dtype=drawn.dtype, device=drawn.device)
        return part_of(self._repeated(drawn, name, shape), cut)

    def stored(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Stored | None:
        """Experts in MXFP4: any half bytes, and scales that make them about as large as others."""
        if not self._has_four_bits or len(shape) < _OF_EXPERTS:
            return None
        groups = (*shape[:-1], shape[-1] // MXFP4_GROUP)
        halves = self._drawn.view(torch.uint8)  # the bytes of random numbers are random enough
        blocks = self._repeated(halves[: _DRAWN // 2 * 2 - 1], f"{name}_blocks", (*groups, MXFP4_GROUP // 2))
        scales = torch.full(groups, _SCALE, dtype=torch.uint8, device=self._drawn.device)
        return Stored("dummy weights", MXFP4, (blocks, scales), shape, MXFP4_GROUP)

    def _repeated(self, drawn: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
        count = int(torch.Size(shape).numel())
        start = zlib.crc32(f"{self._seed} {name}".encode()) % len(drawn)
        if len(self._buffer) < count or self._buffer.dtype is not drawn.dtype:
            with torch.inference_mode(False):  # written to inside that mode and outside
                self._buffer = torch.empty(count, dtype=drawn.dtype, device=drawn.device)
        low, part = 0, drawn[start:]
        while low < count:
            high = min(count, low + len(part))
            self._buffer[low:high] = part[: high - low]
            low, part = high, drawn
        return self._buffer[:count].view(shape)
