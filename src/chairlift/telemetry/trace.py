"""Trace files, read back line by line.

Always: a line that is wrong is named. A last line without its end, as a killed process leaves it, is passed over.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from chairlift.core.errors import ChairliftError, InvalidConfig
from chairlift.telemetry.lines import VERSION, AnyLine, Header


class Trace:
    """A trace file: its header at once, its lines whenever they are iterated, as often as wanted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._decode = msgspec.json.Decoder(AnyLine).decode
        first = next(self._read(), (1, b""))[1]
        try:
            version = msgspec.json.decode(first, type=_Version).version
            if version == VERSION:
                self.header = msgspec.json.decode(first, type=Header)
        except (msgspec.MsgspecError, ChairliftError) as error:
            raise InvalidConfig(f"{path}, line 1: not the header of a trace: {error}") from error
        if version != VERSION:
            raise InvalidConfig(f"{path}: trace version {version} is not known; this release reads version {VERSION}")

    def __iter__(self) -> Iterator[AnyLine]:
        return (line for _, line in self.numbered())

    def numbered(self) -> Iterator[tuple[int, AnyLine]]:
        """Each line after the header with its number in the file."""
        for number, text in self._read():
            if number == 1:
                continue
            try:
                yield number, self._decode(text)
            except msgspec.MsgspecError as error:
                raise InvalidConfig(f"{self.path}, line {number}: {error}") from error

    def _read(self) -> Iterator[tuple[int, bytes]]:
        try:
            with self.path.open("rb") as file:
                for number, text in enumerate(file, 1):
                    if text.endswith(b"\n") or number == 1:
                        yield number, text
        except OSError as error:
            raise InvalidConfig(f"{self.path}: cannot be read: {error.strerror or error}") from error


class _Version(msgspec.Struct, tag_field="kind", tag="trace"):
    version: int
