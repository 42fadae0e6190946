"""Random blocks of each type that GGUF has and the kernels keep, with scales as real files have them; and integers with
scales of groups, as safetensors have them."""

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


# Bits, columns of a group (0: a row), what scales are rounded to, zeros between, whether columns are in an order.
INTEGERS: dict[str, tuple[int, int, torch.dtype, tuple[int, int], bool]] = {
    "W4": (4, 128, torch.float16, (0, 17), False),
    "W4-order": (4, 64, torch.bfloat16, (0, 17), True),
    "W4-symmetric": (4, 32, torch.float16, (8, 9), False),
    "W8": (8, 0, torch.float32, (0, 1), False),
    "W8-zeros": (8, 32, torch.float16, (-128, 128), True),
}


def random_integers(name: str, rows: int, columns: int, seed: int = 0) -> tuple[Stored, NDArray[np.float32]]:
    """With what they stand for."""
    bits, group, dtype, zeros_between, has_order = INTEGERS[name]
    group, random = group or columns, torch.Generator().manual_seed(seed)
    low, shape = 0 if bits == 4 else -128, (rows, columns // group)
    codes = torch.randint(low, low + (1 << bits), (rows, columns), generator=random)
    zeros = torch.randint(*zeros_between, shape, generator=random)
    scales = (torch.rand(shape, generator=random) * 0.01 + 1e-7).to(dtype).float()
    order = torch.randperm(columns, generator=random) if has_order else torch.arange(columns)
    groups = torch.argsort(order) // group  # of each column
    values = ((codes - zeros[:, groups]) * scales[:, groups]).numpy()
    bytes_ = codes.to(torch.uint8 if bits == 4 else torch.int8).view(rows, -1, group)
    tensors = bytes_, scales, zeros.to(torch.int8)
    return Stored(name, f"W{bits}", tensors, (rows, columns), group, order.int() if has_order else None), values
