"""Whether a restarted exact engine has the fingerprint of the one before.

Always: answers keep their fingerprint, unless two engines in a row agree on another: then the one before was wrong, or
the model has changed on the disk, and the server says so.
"""

import os
from pathlib import Path

from chairlift.live.processes.heartbeat import locked
from chairlift.telemetry.log_lines import say


def has_known_fingerprint(path: Path, found: str) -> bool:
    """Compares a new engine's fingerprint with those in the file: the one in force and, if the engine before this one
    was refused, its own."""
    with locked(path.with_suffix(".lock")):  # replicas start together
        return _is_known(path, found)


def _is_known(path: Path, found: str) -> bool:
    known = path.read_text().split() if path.exists() else []
    if known and found not in known:
        _write(path, f"{known[0]} {found}")
        say(f"this engine's fingerprint is {found} and that of answers so far {known[0]}; it ends for another")
        return False
    if known and found != known[0]:
        say(f"from here on answers have the fingerprint {found}: two engines in a row have; before it was {known[0]}")
    if known != [found]:
        _write(path, found)
    return True


def _write(path: Path, text: str) -> None:
    """Atomic: an engine may be killed at any time."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, path)
