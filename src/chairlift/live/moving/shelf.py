"""The shelf: pieces that an engine has written for others, as files in shared memory.

Always: no more bytes than its bound; a piece that is not fetched is dropped after a while. An engine that has fetched a
piece removes the file itself, or has it removed. Engines of a machine share the folder; what one that died has left
there is dropped by the others. One thread puts pieces here while another sweeps.
"""

import mmap
import os
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from chairlift.core.moving import KEPT_S
from chairlift.live.moving.ticket import MoveFailed, new_name


class Piece(NamedTuple):
    path: Path
    num_bytes: int
    checksum: int


class Shelf:
    def __init__(self, folder: Path, max_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self._max_bytes = max_bytes
        self._now = now
        self._kept: dict[Path, tuple[float, int]] = {}  # when each was put there, and its bytes

    def put(self, num_bytes: int, fill: Callable[[memoryview], None]) -> Piece:
        """Raises MoveFailed without room."""
        self.sweep()
        self._drop_orphans()
        if sum(size for _, size in list(self._kept.values())) + num_bytes > self._max_bytes:
            raise MoveFailed("too many pieces wait to be fetched")
        path = self.folder / new_name()
        self._kept[path] = self._now(), num_bytes
        try:
            return Piece(path, num_bytes, _write(path, num_bytes, fill))
        except OSError as error:
            self.drop(path)
            raise MoveFailed(f"a piece cannot be written: {error.strerror or error}") from error

    def _drop_orphans(self) -> None:
        """Pieces that are too old for their engine to be there."""
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):  # fetched just now
                if path.is_file() and time.time() - path.stat().st_mtime > 2 * KEPT_S:
                    path.unlink()

    def drop(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._kept.pop(path, None)

    def sweep(self) -> None:
        """Forgets pieces that were fetched, and drops old ones."""
        for path, (since, _) in list(self._kept.items()):
            if self._now() - since > KEPT_S or not path.exists():
                self.drop(path)


def _write(path: Path, num_bytes: int, fill: Callable[[memoryview], None]) -> int:
    """The checksum. The room is taken first: writing to mapped memory that is not there would end the process."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, num_bytes)
        with mmap.mmap(file, num_bytes) as mapped, memoryview(mapped) as view:
            fill(view)
            return zlib.crc32(view)
    finally:
        os.close(file)
