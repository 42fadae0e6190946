"""Reads protobuf messages field by field, without a schema: fields of other numbers than expected are the reader's to
skip.

Always: a length that the message cannot hold, a number of more than 64 bits and a group are refused with the byte
where they lie. Nothing is copied, and nothing is read deeper than it is asked for.

    message  = field*        field = key value        key = number << 3 | kind, a varint
    kind 0: varint    1: 8 bytes    2: length, a varint, then bytes (text, message, packed numbers)    5: 4 bytes
"""

from collections.abc import Iterator
from typing import NamedTuple

_SIZES = {1: 8, 5: 4}  # of kinds of a fixed width


class Field(NamedTuple):
    number: int
    value: int | memoryview
    at: int  # where the value begins in the file

    @property
    def data(self) -> memoryview:
        if isinstance(self.value, int):
            raise ValueError(f"a number stands at byte {self.at}, where bytes belong")
        return self.value

    @property
    def integer(self) -> int:
        if isinstance(self.value, memoryview):
            raise ValueError(f"bytes stand at byte {self.at}, where a number belongs")
        return self.value

    @property
    def signed(self) -> int:
        """Of 64 bits, as int32 and int64 are written."""
        return self.integer - (1 << 64 if self.integer >> 63 else 0)

    @property
    def text(self) -> str:
        return bytes(self.data).decode()

    def fields(self) -> "Iterator[Field]":
        """Of the message that the value is."""
        return fields(self.data, self.at)

    def numbers(self) -> Iterator[int]:
        """A repeated number, one by one or packed."""
        if isinstance(self.value, int):
            yield self.signed
            return
        at = 0
        while at < len(self.value):
            number, at = _varint(self.value, at, self.at)
            yield Field(self.number, number, self.at).signed


def fields(message: memoryview, base: int = 0) -> Iterator[Field]:
    """`base`: where the message begins in the file."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at, base)
        kind = key & 7
        if kind == 0:
            start = base + at
            value, at = _varint(message, at, base)
            yield Field(key >> 3, value, start)
            continue
        if kind == 2:
            length, at = _varint(message, at, base)
        elif kind in _SIZES:
            length = _SIZES[kind]
        else:
            raise ValueError(f"unknown wire type {kind} at byte {base + at}")
        if length > end - at:
            raise ValueError(f"a field at byte {base + at} runs past the end")
        yield Field(key >> 3, message[at : at + length], base + at)
        at += length


def _varint(message: memoryview, at: int, base: int) -> tuple[int, int]:
    """A number, and where what follows it begins."""
    if at < len(message) and message[at] < 0x80:  # most are short
        return message[at], at + 1
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError(f"it ends at byte {base + at}, in the middle of a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise ValueError(f"a number at byte {base + at} is longer than 64 bits")
