"""What a safetensors file says it holds: names, types, shapes and places of its tensors, without reading any.

| length, 8 bytes | JSON of that length | numbers |

Always: what is said to lie in the file does, and is as long as its type and shape.
"""

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

from chairlift.core.errors import InvalidConfig

ITEMSIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # those that are read
_MAX_BYTES = 100_000_000  # of the JSON, as the format has it


class StoredTensor(NamedTuple):
    dtype: str  # "F32", "BF16", ...
    shape: tuple[int, ...]
    first: int  # byte, of the numbers


class Header(NamedTuple):
    tensors: Mapping[str, StoredTensor]
    start: int  # of the numbers, in bytes of the file
    num_bytes: int  # of the numbers
    state: tuple[int, int, int]  # of the file; another one once it is written again


def read_header(path: Path) -> Header:
    try:
        with path.open("rb") as file:
            return _read(file)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not a readable safetensors file: {error}") from None


def state_of(descriptor: int) -> tuple[int, int, int]:
    """Of an open file."""
    facts = os.fstat(descriptor)
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _read(file: BinaryIO) -> Header:
    state = state_of(file.fileno())
    length, size = int.from_bytes(file.read(8), "little"), state[1]
    if not 0 < length <= min(_MAX_BYTES, size):
        raise ValueError("its header is cut or damaged")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    start = 8 + length
    return Header({name: _tensor(name, of, size - start) for name, of in header.items()}, start, size - start, state)


def _tensor(name: str, of: Mapping[str, object], size: int) -> StoredTensor:
    dtype, shape = str(of["dtype"]), tuple(map(int, of["shape"]))  # type: ignore[call-overload]
    first, end = map(int, of["data_offsets"])  # type: ignore[call-overload]
    if min(shape, default=0) < 0 or not 0 <= first <= end <= size:
        raise ValueError(f"tensor {name} lies outside of the file, which may be cut")
    if dtype in ITEMSIZES and end - first != prod(shape) * ITEMSIZES[dtype]:
        raise ValueError(f"tensor {name} is longer or shorter than its shape")
    return StoredTensor(dtype, shape, first)
