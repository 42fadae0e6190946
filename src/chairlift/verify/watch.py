"""How far a long run has come, for whoever waits for it."""

from collections.abc import Callable

Watch = Callable[[str, int, int], None]  # what is under way, and how many of how many parts are done; 0 of 0: unknown


def part(watch: Watch, name: str) -> Callable[[int, int], None]:
    """The watch of one part by itself."""
    return lambda done, total: watch(name, done, total)
