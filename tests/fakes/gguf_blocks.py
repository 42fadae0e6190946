"""Random blocks of each type that GGUF has and the kernels keep, with scales as real files have them."""

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from chairlift.runner.weights.source import Stored

TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
_HALVES = {"Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}  # where; else at 0


def random_blocks(kind: str, rows: int, columns: int, seed: int = 0) -> NDArray[np.uint8]:
    """[rows, bytes]"""
    rng = np.random.default_rng(seed)
    items, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    raw = rng.integers(0, 256, (rows, columns // items, size), dtype=np.uint8)
    for at in _HALVES.get(kind, (0,)):
        scales = rng.uniform(0.001, 0.01, (rows, columns // items, 1)).astype(np.float16)
        raw[:, :, at : at + 2] = scales.view(np.uint8).reshape(rows, -1, 2)
    return raw.reshape(rows, -1)


def values_of(kind: str, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    """What the blocks stand for, by the gguf package."""
    return dequantize(raw, GGMLQuantizationType[kind]).reshape(len(raw), -1)


def blocks_of(kind: str, raw: NDArray[np.uint8], columns: int) -> Stored:
    group, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = torch.from_numpy(raw.reshape(len(raw), -1, size))
    return Stored(f"a {kind} tensor", kind, (blocks,), (len(raw), columns), group)
