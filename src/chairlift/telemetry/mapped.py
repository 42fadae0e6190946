"""Files of a server's own: those that processes map to memory, and private ones with prompts.

Files with prompts: for the server's own user alone, whatever the umask.

Files that processes map to memory, made so that writing to them cannot fail.

Always: every byte is allocated on the disk from the start. A byte allocated at its first write ends the writing process
(SIGBUS) when the disk is full.
"""

import errno
import fcntl
import mmap
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from chairlift.core.errors import InvalidConfig


def create_private(path: Path) -> FileIO:
    """Opens for writing from the beginning; an existing file becomes private too. Raises `OSError`."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    file = FileIO(number, "wb")
    try:
        if stat.S_ISREG(os.fstat(number).st_mode):  # not a terminal or a pipe
            os.fchmod(number, 0o600)
    except OSError:
        file.close()
        raise
    return file


def make_mapped(path: Path, size: int) -> None:
    """A file of zeros; an existing one keeps its content. Raises `InvalidConfig` when the disk is full."""
    try:
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except (AttributeError, OSError) as error:  # not every system and file system can
                if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                    raise
                file.write(bytes(max(0, size - file.seek(0, os.SEEK_END))))
    except OSError as error:
        where = f"{path.parent} has no room for {size / 2**10:,.0f} KiB that processes share"
        raise InvalidConfig(f"{where}: {error.strerror}; make some, or name another folder in TMPDIR") from error


class LockedFile:
    """A mapped file with a lock between processes, which the kernel takes back from a holder that dies."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self.memory = mmap.mmap(self._file, 0)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For some microseconds at most: the next process blocks meanwhile."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
