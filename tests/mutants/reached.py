"""Copied into a tree beside the package: notes which test runs which mutant's site, in any process a test starts."""

import os

_seen: set[tuple[str, str]] = set()


def reached(mutant: str) -> None:
    """A line once for each pair; a process keeps the test that started it."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if (mutant, test) in _seen or "REACHED" not in os.environ:
        return
    _seen.add((mutant, test))
    file = os.open(os.environ["REACHED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{mutant}\t{test}\n".encode())
    os.close(file)
