"""Whether an exact engine that takes the place of another computes the bits that the other did.

Always: answers go on with the bits that they began with, unless two engines in a row agree on others: then it was the
one before them that was wrong, or what is served has changed on the disk, and the server says so.
"""

import os
from pathlib import Path

from chairlift.serving.banner import say


def has_known_fingerprint(path: Path, found: str) -> bool:
    """Compares a new engine's fingerprint with what those before it left in the file: the one in force and, if the
    engine before this one was refused, its own."""
    known = path.read_text().split() if path.exists() else []
    if known and found not in known:
        _write(path, f"{known[0]} {found}")
        say(f"this engine's bits are {found} and those of answers so far {known[0]}; it ends for another")
        return False
    if known and found != known[0]:
        say(f"from here on answers have the bits {found}: two engines in a row have; before they had {known[0]}")
    if known != [found]:
        _write(path, found)
    return True


def _write(path: Path, text: str) -> None:
    """At once: whenever an engine is killed, the next finds something whole."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, path)
