"""The cluster key: 32 random bytes as 64 hexadecimal digits, in a file of the user's own or in the environment.

Whoever has it is a member: it can answer requests, and read them.
"""

import logging
import os
import re
import secrets
from pathlib import Path

from chairlift.core.errors import InvalidConfig

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_log = logging.getLogger(__name__)
_MAKE = "make one with `chairlift cluster-key FILE` and give the same file to all machines"


def new_key() -> str:
    return secrets.token_hex(32)


def make_key(path: Path) -> None:
    """Writes a new key to a file that only this user can read; an existing file stays."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise InvalidConfig(f"{path}: is there already; machines that have it could not join a new one") from error
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be written: {error.strerror or error}") from error
    with os.fdopen(file, "w") as out:
        out.write(new_key() + "\n")


def read_key(given: str | None) -> str:
    """The key's digits, from a file or as they are."""
    if given is None:
        raise InvalidConfig(f"--cluster-key FILE is missing: {_MAKE}")
    if _KEY.fullmatch(given.strip()):
        return given.strip().lower()
    path = Path(given).expanduser()
    try:
        found = path.read_text(encoding="utf-8").strip()
        if path.stat().st_mode & 0o077:
            _log.warning("--cluster-key %s: other users of this machine may read it; chmod 600 it", path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text"
        raise InvalidConfig(f"--cluster-key {path}: cannot be read: {why}; {_MAKE}") from error
    if not _KEY.fullmatch(found):
        raise InvalidConfig(f"--cluster-key {path}: not a cluster key (64 hexadecimal digits); {_MAKE}")
    return found.lower()
