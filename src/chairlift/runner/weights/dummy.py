"""Random weights of a model's shape: for measuring, without a download."""

import zlib
from collections.abc import Collection

import torch
from torch import Tensor

_STD = 0.02
# Normal numbers are slow to draw; a large matrix repeats a drawn stretch, whose odd length no row width divides.
_DRAWN = (1 << 22) + 15


class DummyTensors:
    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._drawn = torch.empty(_DRAWN).normal_(0.0, _STD, generator=torch.Generator().manual_seed(seed))

    @property
    def names(self) -> Collection[str]:
        return ()

    def file_of(self, name: str) -> str:
        return "dummy weights"

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape)
        count = int(torch.Size(shape).numel())
        start = zlib.crc32(f"{self._seed} {name}".encode()) % _DRAWN
        parts = [self._drawn[start:]] + [self._drawn] * (count // _DRAWN + 1)
        return torch.cat(parts)[:count].view(shape)
