"""The noise that tokens are drawn with: a fixed number for each (seed, sample index, position).

Stateless: a seeded request draws the same numbers in any batch, in any order, on any device.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio


def stream(seed: int, sample_index: int) -> int:
    """Names the numbers of one request, in 64 bits."""
    return int(_mixed(_mixed(seed & _MASK) ^ sample_index))


def uniforms(streams: NDArray[np.uint64], positions: NDArray[np.int64], attempts: range) -> NDArray[np.float64]:
    """Numbers in [0, 1) with 52 random bits; a token may need several attempts. -> [requests, attempts]"""
    states = _mixed(streams ^ positions.astype(np.uint64))
    states = _mixed(states[:, None] ^ np.array(attempts, np.uint64))
    return np.asarray(states >> 12, np.float64) * 2.0**-52


def _mixed(x: Any) -> Any:
    """The splitmix64 generator's step: neighbouring numbers come out unrelated. Of an int or of uint64s."""
    x = (x + _STEP) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
