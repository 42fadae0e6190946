"""Files with prompts: for the server's own user alone, whatever the umask."""

import os
import stat
from io import FileIO
from pathlib import Path


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
