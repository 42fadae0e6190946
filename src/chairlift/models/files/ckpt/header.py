"""The header of a MindSpore checkpoint: where each of its tensors lies.

Always: a length, a size or a name that the file cannot hold is refused with the file's name, the tensor and the byte.
Never touches the numbers of tensors. One of more than 512 MiB is cut into values of one tag that follow each other.

    message Checkpoint  { repeated Value value = 1; }
    message Value       { string tag = 1; TensorProto tensor = 2; MapTensorProto maptensor = 3; }
    message TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3; }

After the message there may be a checksum: "crc_num" and ten bytes.
"""

import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.protobuf import Field, fields

_ITEM_BYTES = {
    "Bool": 1, "Int8": 1, "UInt8": 1, "Int16": 2, "UInt16": 2, "Int32": 4, "UInt32": 4, "Int64": 8, "UInt64": 8,
    "Float16": 2, "BFloat16": 2, "Float32": 4, "Float64": 8,
}  # fmt: skip
_CHECKSUM = b"crc_num"
_CHECKSUM_BYTES = len(_CHECKSUM) + 10
_MAX_VALUES = 1_000_000  # far above any model; more would cost memory before a missing tensor is noticed
_MAX_PARTS = 4096  # of one tensor
_MAX_DIMENSIONS = 8
_MAX_NAME = 1024  # bytes


class Piece(NamedTuple):
    """Bytes of the file."""

    start: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    shape: tuple[int, ...]
    type_name: str  # Float16, BFloat16, ..., or str
    pieces: tuple[Piece, ...]  # one behind the other

    @property
    def num_bytes(self) -> int:
        return sum(piece.num_bytes for piece in self.pieces)

    @property
    def expected_bytes(self) -> int | None:
        """By shape and type; None: the type's size is not known."""
        size = _ITEM_BYTES.get(self.type_name)
        return None if size is None else math.prod(self.shape) * size


def is_pickle(path: Path) -> bool:
    """Whether it starts as torch's files do, which are pickles, or archives of them."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    return start == b"PK\x03\x04" or start[:1] == b"\x80"  # with which no checkpoint begins


def read_ckpt(path: Path) -> dict[str, StoredTensor]:
    """Its tensors by name; raises `InvalidConfig` when it is not a whole checkpoint."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise InvalidConfig(f"{path}: not a MindSpore checkpoint: it is empty")
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    if data[-_CHECKSUM_BYTES:][: len(_CHECKSUM)] == _CHECKSUM:
        data = data[:-_CHECKSUM_BYTES]
    try:
        return _tensors(data)
    except ValueError as error:
        raise InvalidConfig(f"{path}: not a whole MindSpore checkpoint: {error}") from error


def _tensors(data: memoryview) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    last = ""
    for count, field in enumerate(fields(data)):
        if field.number != 1:
            raise ValueError(f"field {field.number} at byte {field.at} is none of its fields")
        if count >= _MAX_VALUES:
            raise ValueError(f"it has more than {_MAX_VALUES:,} values")
        name, found = _value(field)
        before = tensors.get(name)
        if before is not None and (name != last or _is_whole(before)):
            raise ValueError(f"tensor {name!r} appears twice, the second time at byte {field.at}")
        if before is not None and (before.shape, before.type_name) != (found.shape, found.type_name):
            raise ValueError(f"the parts of tensor {name!r} differ in shape or type, at byte {field.at}")
        if before is not None and len(before.pieces) >= _MAX_PARTS:
            raise ValueError(f"tensor {name!r} is in more than {_MAX_PARTS} parts, at byte {field.at}")
        if name != last:
            _check_whole(last, tensors.get(last))
        tensors[name] = found if before is None else _joined(before, found)
        last = name
    _check_whole(last, tensors.get(last))
    return tensors


def _value(field: Field) -> tuple[str, StoredTensor]:
    name, tensor = None, None
    for part in field.fields():
        if part.number == 1:
            if len(part.data) > _MAX_NAME:
                raise ValueError(f"a name at byte {part.at} is longer than {_MAX_NAME} bytes")
            name = part.text
        elif part.number == 2:
            tensor = part
        elif part.number == 3:
            raise ValueError(f"tensor {name!r} at byte {part.at} is a map, which is not supported")
    if not name or tensor is None:
        raise ValueError(f"the value at byte {field.at} has no name or no tensor")
    return name, _tensor(name, tensor)


def _tensor(name: str, field: Field) -> StoredTensor:
    shape: list[int] = []
    type_name, content = "", None
    for part in field.fields():
        if part.number == 1:
            for dimension in part.numbers():
                shape.append(dimension)
                if len(shape) > _MAX_DIMENSIONS or not 0 <= dimension < 1 << 48:
                    raise ValueError(f"tensor {name!r} at byte {part.at} has an impossible shape")
        elif part.number == 2:
            type_name = part.text[:_MAX_NAME]
        elif part.number == 3:
            content = Piece(part.at, len(part.data))
    if content is None or not type_name:
        raise ValueError(f"tensor {name!r} at byte {field.at} has no type or no content")
    if shape == [0] and content.num_bytes:  # a number alone
        shape = []
    return StoredTensor(tuple(shape), type_name, (content,))


def _joined(before: StoredTensor, found: StoredTensor) -> StoredTensor:
    return StoredTensor(before.shape, before.type_name, before.pieces + found.pieces)


def _is_whole(tensor: StoredTensor) -> bool:
    return tensor.expected_bytes in (None, tensor.num_bytes)


def _check_whole(name: str, tensor: StoredTensor | None) -> None:
    if tensor is not None and not _is_whole(tensor):
        found = f"{tensor.num_bytes} bytes of {tensor.type_name}, {list(tensor.shape)} takes {tensor.expected_bytes}"
        raise ValueError(f"tensor {name!r} at byte {tensor.pieces[0].start} has {found}")
