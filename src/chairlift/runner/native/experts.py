"""Experts' matrices as experts.c reads them: for each expert its parts, one after the other."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chairlift.core.errors import InvalidConfig
from chairlift.runner.native.packed import PackedWeight
from chairlift.runner.native.quantised import QuantisedWeight
from chairlift.runner.ops import Weight

# As in experts.c.
_PART = np.dtype([("type", np.int64), ("w", np.int64), ("rows", np.int64), ("bias", np.int64)])


class NativeExperts(NamedTuple):
    weights: tuple[Weight, ...]  # keep the memory of the parts
    parts: NDArray[Any]
    num_parts: int  # of each expert

    @property
    def pointer(self) -> int:
        return self.parts.ctypes.data


def native_experts(weights: Sequence[Weight]) -> NativeExperts:
    rows: list[tuple[int, ...]] = []
    counts = set()
    for weight in weights:
        assert isinstance(weight, PackedWeight | QuantisedWeight)
        counts.add(len(weight.parts))
        rows += weight.parts
    if len(counts) > 1:
        raise InvalidConfig("experts whose parts are stored in different ways cannot be kept; use --quantize none")
    return NativeExperts(tuple(weights), np.array(rows, _PART), counts.pop())
