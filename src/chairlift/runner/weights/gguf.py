"""Weights from a GGUF file, mapped into memory: each tensor dequantised when it is read, or handed out as blocks.

Shapes are stored in reverse order; names and the order of rows are the declaration's.
"""

import math
import mmap
import warnings
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.gguf.header import TENSOR_TYPES, GgufHeader, TensorInfo
from chairlift.models.shards import Cut
from chairlift.runner.weights.source import Stored, part_of

# The library dequantises 16 rows at a time. Rows of this many blocks are long enough to keep numpy out of Python and
# short enough to stay in the cache.
_BLOCKS_PER_ROW = 256
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class GgufTensors:
    def __init__(self, header: GgufHeader, num_threads: int = 1) -> None:
        self._path = header.path
        self._stored = header.tensors
        with header.path.open("rb") as file:
            self._bytes = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        with warnings.catch_warnings(action="ignore"):  # nothing is written to it
            self._file = torch.from_numpy(self._bytes)
        self._threads = ThreadPoolExecutor(num_threads, "dequantise")

    @property
    def names(self) -> Collection[str]:
        return self._stored.keys()

    def file_of(self, name: str) -> str:
        return str(self._path)

    def read(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Tensor:
        info = self._find(name, shape)
        if not _can_dequantise(info.type):
            raise InvalidConfig(
                f"{self._path}: tensor {name} is {info.type_name}, which cannot be read; "
                f"supported: {', '.join(supported_types())}"
            )
        if cut is None:
            tensor = self._dequantised(info, self._stored_bytes(info)).view(shape)
        else:
            tensor = self._dequantised_part(info, cut)
        if not all(map(math.isfinite, torch.aminmax(tensor))):
            raise InvalidConfig(f"{self._path}: tensor {name} holds values that are not finite numbers (damaged?)")
        return tensor

    def stored(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Stored | None:
        info = self._find(name, shape)
        if info.num_bytes is None or info.type_name in _FLOATS:
            return None
        kind, width, size = TENSOR_TYPES[info.type]
        found = self._file[info.offset : info.offset + info.num_bytes].view(*shape[:-1], shape[-1] // width, size)
        whole = Stored(f"{self._path}: tensor {name}", kind, (found,), shape, width)
        return whole if cut is None else whole.cut(cut)

    def _find(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        if name not in self._stored:
            raise InvalidConfig(f"{self._path}: tensor {name} is missing from the weights")
        info = self._stored[name]
        # Converters leave dimensions of 1 out, or keep them.
        if [n for n in info.shape[::-1] if n > 1] != [n for n in shape if n > 1]:
            found = list(info.shape[::-1])
            raise InvalidConfig(f"{self._path}: tensor {name} has shape {found}, the configuration says {list(shape)}")
        return info

    def _stored_bytes(self, info: TensorInfo) -> NDArray[np.uint8]:
        assert info.num_bytes is not None
        return self._bytes[info.offset : info.offset + info.num_bytes]

    def _dequantised_part(self, info: TensorInfo, cut: Cut) -> Tensor:
        """Reads the rows or, where no block is cut through, the columns alone."""
        _, width, size = TENSOR_TYPES[info.type]
        rows = self._stored_bytes(info).reshape(cut.shape[0], -1)
        if cut.dim == 0:
            parts = [rows[low:high].reshape(-1) for low, high in cut.spans]
        elif all(low % width == high % width == 0 for low, high in cut.spans):
            parts = [rows[:, low // width * size : high // width * size].reshape(-1) for low, high in cut.spans]
        else:
            return part_of(self._dequantised(info, rows.reshape(-1)).view(cut.shape), cut)
        count = sum(high - low for low, high in cut.spans)
        shape = [count if dim == cut.dim else full for dim, full in enumerate(cut.shape)]
        return torch.cat([self._dequantised(info, part) for part in parts]).view(shape)

    def _dequantised(self, info: TensorInfo, stored: NDArray[np.uint8]) -> Tensor:
        if dtype := _FLOATS.get(info.type_name):
            return torch.from_numpy(stored.copy()).view(dtype)
        kind = GGMLQuantizationType(info.type)
        row_bytes = _BLOCKS_PER_ROW * TENSOR_TYPES[info.type][2]
        whole = len(stored) // row_bytes * row_bytes

        def piece(rows: NDArray[np.uint8]) -> Tensor:
            with np.errstate(all="ignore"):  # a tensor with such values is refused
                return torch.from_numpy(dequantize(rows, kind)).flatten()

        pieces = [rows for rows in np.array_split(stored[:whole].reshape(-1, row_bytes), 8) if len(rows)]
        if whole < len(stored):
            pieces.append(stored[whole:].reshape(1, -1))
        return torch.cat(list(self._threads.map(piece, pieces)))


def supported_types() -> list[str]:
    return [name for kind, (name, _, _) in TENSOR_TYPES.items() if _can_dequantise(kind)]


@lru_cache
def _can_dequantise(kind: int) -> bool:
    """Whether the library can; each release knows more types."""
    if kind not in TENSOR_TYPES:
        return False
    try:
        dequantize(np.zeros((1, TENSOR_TYPES[kind][2]), np.uint8), GGMLQuantizationType(kind))
    except (NotImplementedError, ValueError):
        return False
    return True
