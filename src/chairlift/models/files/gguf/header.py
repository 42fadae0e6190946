"""The header of a GGUF file: its metadata and where each tensor lies.

Always: a count, length or offset that the file cannot hold is refused with the file's name and what is wrong. Does not
know what the metadata means, and never touches tensor data.

    magic "GGUF" | version u32 | tensors u64 | pairs u64 | pairs... | tensor infos... | padding | tensor data
"""

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig

# type: (name, values per block, bytes per block). A type that is not listed keeps its number and has no known size.
# The gguf package has the same table, but importing it takes longer than most commands.
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
# Types that the format has had.
_RETIRED = {
    4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}  # fmt: skip

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # struct codes
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
_SMALLEST_PAIR = 8 + 4 + 1  # an empty key, a type, one byte
_SMALLEST_TENSOR = 8 + 4 + 4 + 8  # an empty name, no dimensions, a type, an offset


@dataclass(frozen=True, slots=True)
class TensorInfo:
    shape: tuple[int, ...]  # as stored: the fastest dimension first
    type: int  # a key of TENSOR_TYPES, or a type this reader has no size for
    offset: int  # from the start of the file
    num_bytes: int | None  # None: the type's size is not known

    @property
    def type_name(self) -> str:
        return TENSOR_TYPES[self.type][0] if self.type in TENSOR_TYPES else _RETIRED.get(self.type, f"type {self.type}")


@dataclass(frozen=True, slots=True)
class GgufHeader:
    path: Path
    version: int
    alignment: int
    metadata: dict[str, Any]  # numbers, booleans, strings and lists of these
    tensors: dict[str, TensorInfo]


def read_header(path: Path) -> GgufHeader:
    """Reads the header; raises `InvalidConfig` when the file is not a whole GGUF file of version 2 or 3."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 24:
                raise InvalidConfig(f"{path}: not a GGUF file: only {size} bytes long")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Cursor(path, data).header()
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error


class _Cursor:
    """A place in the file that only moves forward and never past the end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = 0

    def header(self) -> GgufHeader:
        magic = self._data[:4]
        if magic != b"GGUF":
            raise self._bad(f"not a GGUF file: it starts with {magic!r}")
        self._at = 4
        version: int = self._number("I", "version")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
            raise self._bad("big-endian GGUF is not supported" if swapped else f"GGUF version {version} is not 2 or 3")
        num_tensors = self._count("tensor count", _SMALLEST_TENSOR)
        num_pairs = self._count("metadata count", _SMALLEST_PAIR)
        metadata = self._metadata(num_pairs)
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self._bad(f"general.alignment {alignment!r} is not a power of two")
        return GgufHeader(self._path, version, alignment, metadata, self._tensors(num_tensors, alignment))

    def _metadata(self, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(count):
            key = self._string("metadata key")
            if key in metadata:
                raise self._bad(f"metadata key {key!r} appears twice")
            metadata[key] = self._value(key, self._number("I", f"type of {key!r}"))
        return metadata

    def _value(self, key: str, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind], repr(key))
        if kind == _STRING:
            return self._string(repr(key))
        if kind == _ARRAY:
            return self._array(key)
        raise self._bad(f"metadata {key!r} has unknown type {kind}")

    def _array(self, key: str) -> list[Any]:
        kind = self._number("I", f"type of {key!r}")
        if kind == _STRING:
            return self._strings(key, self._count(f"length of {key!r}", 8))
        if kind not in _NUMBERS:
            raise self._bad(f"metadata {key!r} is an array of unknown type {kind}")
        count = self._count(f"length of {key!r}", struct.calcsize("<" + _NUMBERS[kind]))
        form = f"<{count}{_NUMBERS[kind]}"
        start = self._at
        self._at += struct.calcsize(form)
        return list(struct.unpack_from(form, self._data, start))

    def _strings(self, key: str, count: int) -> list[str]:
        # A vocabulary has 10^5 of these and more: the loop keeps everything in locals.
        data, size, at, unpack = self._data, self._size, self._at, struct.Struct("<Q").unpack_from
        strings: list[str] = []
        for _ in range(count):
            if at + 8 > size:
                raise self._bad(f"ends inside the strings of {key!r}")
            end = at + 8 + unpack(data, at)[0]
            if end > size:
                raise self._bad(f"a string of {key!r} runs past the end of the file")
            strings.append(data[at + 8 : end].decode("utf-8", "replace"))
            at = end
        self._at = at
        return strings

    def _tensors(self, count: int, alignment: int) -> dict[str, TensorInfo]:
        found: list[tuple[str, tuple[int, ...], int, int]] = []
        for _ in range(count):
            name = self._string("tensor name")
            num_dimensions = self._number("I", f"tensor {name!r}")
            if num_dimensions > _MAX_DIMENSIONS:
                raise self._bad(f"tensor {name!r} has {num_dimensions} dimensions")
            shape = tuple(self._number("Q", f"tensor {name!r}") for _ in range(num_dimensions))
            found.append((name, shape, self._number("I", f"tensor {name!r}"), self._number("Q", f"tensor {name!r}")))
        base = -(-self._at // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, shape, kind, offset in found:
            if name in tensors:
                raise self._bad(f"tensor {name!r} appears twice")
            tensors[name] = self._placed(name, shape, kind, base + offset)
        return tensors

    def _placed(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> TensorInfo:
        num_bytes = None
        if kind in TENSOR_TYPES:
            _, per_block, block_bytes = TENSOR_TYPES[kind]
            if (shape[0] if shape else 1) % per_block:
                raise self._bad(f"tensor {name!r} has rows of {shape[0]} values, not a multiple of {per_block}")
            num_bytes = math.prod(shape) // per_block * block_bytes
        if offset + (num_bytes or 0) > self._size:
            raise self._bad(f"tensor {name!r} lies past the end of the file (truncated?)")
        return TensorInfo(shape, kind, offset, num_bytes)

    def _number(self, form: str, what: str) -> Any:
        end = self._at + struct.calcsize("<" + form)
        if end > self._size:
            raise self._bad(f"ends inside {what}")
        (value,) = struct.unpack_from("<" + form, self._data, self._at)
        self._at = end
        return value

    def _count(self, what: str, smallest: int) -> int:
        """A number of things of at least `smallest` bytes each, all of which must still fit."""
        count: int = self._number("Q", what)
        if count * smallest > self._size - self._at:
            raise self._bad(f"{what} of {count} does not fit in the file")
        return count

    def _string(self, what: str) -> str:
        length = self._count(f"length of {what}", 1)
        start = self._at
        self._at += length
        return self._data[start : self._at].decode("utf-8", "replace")

    def _bad(self, what: str) -> InvalidConfig:
        return InvalidConfig(f"{self._path}: {what}")
