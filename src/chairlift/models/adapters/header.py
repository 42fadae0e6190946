"""What a safetensors file says it holds: names, types, shapes and places of its tensors, without reading any.

| length, 8 bytes | JSON of that length | numbers |

Always: the tensors lie one after the other and fill the file, each as long as its type and shape; anything else is
refused.
"""

import json
import os
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

from chairlift.core.errors import InvalidConfig

ITEMSIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # those that are read
_MAX_DIMENSIONS = 8


class StoredTensor(NamedTuple):
    dtype: str  # "F32", "BF16", ...
    shape: tuple[int, ...]
    first: int  # byte, of the numbers
    end: int


class Header(NamedTuple):
    tensors: Mapping[str, StoredTensor]
    start: int  # of the numbers, in bytes of the file
    num_bytes: int  # of the numbers
    state: tuple[int, int, int]  # of the file; another one once it is written again


def adapter_header(path: Path, max_bytes: int = 2**20) -> Header:
    """`max_bytes`: of its JSON."""
    try:
        with path.open("rb") as file:
            return _read(file, max_bytes)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not a readable safetensors file: {error}") from None


def state_of(descriptor: int) -> tuple[int, int, int]:
    """Of an open file."""
    facts = os.fstat(descriptor)
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _read(file: BinaryIO, max_bytes: int) -> Header:
    state = state_of(file.fileno())
    length = int.from_bytes(file.read(8), "little")
    start, num_bytes = 8 + length, state[1] - 8 - length
    if length <= 0 or num_bytes < 0:
        raise ValueError("its header is cut or damaged")
    if length > max_bytes:
        raise ValueError(f"its header has {length} bytes, the tensors of this model take {max_bytes} at most")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    tensors = {name: _tensor(name, of, num_bytes) for name, of in header.items()}
    spans = sorted((tensor.first, tensor.end) for tensor in tensors.values())
    if any(end != first for (_, end), (first, _) in pairwise(((0, 0), *spans, (num_bytes, num_bytes)))):
        raise ValueError("its tensors overlap or do not fill it")
    return Header(tensors, start, num_bytes, state)


def _tensor(name: str, of: Mapping[str, object], num_bytes: int) -> StoredTensor:
    dtype, shape, place = of["dtype"], of["shape"], of["data_offsets"]
    if not (isinstance(shape, list) and len(shape) <= _MAX_DIMENSIONS and isinstance(place, list) and len(place) == 2):
        raise ValueError(f"tensor {name} has no shape or no place")
    if not all(type(number) is int and 0 <= number <= num_bytes for number in (*shape, *place)):
        raise ValueError(f"tensor {name} lies outside of the file, which may be cut")
    first, end = place
    if not isinstance(dtype, str) or (dtype in ITEMSIZES and end - first != prod(shape) * ITEMSIZES[dtype]):
        raise ValueError(f"tensor {name} is longer or shorter than its shape")
    return StoredTensor(dtype, tuple(shape), first, end)
