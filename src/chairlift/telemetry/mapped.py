"""Files that processes map to memory, made so that writing to them cannot fail.

Always: every byte has its place on the disk from the start. One that gets it when it is first written ends the process
that writes (SIGBUS) if the disk is full by then.
"""

import errno
import os
from pathlib import Path

from chairlift.core.errors import InvalidConfig


def make_mapped(path: Path, size: int) -> None:
    """A file of zeros; what one that is there holds stays. Raises `InvalidConfig` when there is no room."""
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
