"""Where faults are planted, and how many of sixty in each room.

A file belongs to the room of its longest prefix. Files without a room get no faults: tests on a CPU reach little of
CUDA's and MindSpore's code, but for the steps' plain numpy.
"""

from collections.abc import Sequence

PREFIXES: dict[str, str | None] = {
    "core": "core",
    "runner": "runner",
    "runner/cuda": None,
    "runner/cuda/step": "runner",
    **{f"runner/cuda/step/{name}.py": None for name in ("batch", "device", "forward", "graphs", "in_flight", "memory")},
    "runner/mindspore": None,
    "live/wire": "wire",
    "live/recovery": "recovery",
    "text": "text",
    "server": "server",
    "config": "config",
    "models": "config",
}
SHARES = {"core": 20, "runner": 8, "wire": 6, "recovery": 4, "text": 8, "server": 8, "config": 6}


def room_of(path: str) -> str | None:
    """The room of a file, named from the package's folder on."""
    prefixes = [prefix for prefix in PREFIXES if path == prefix or path.startswith(f"{prefix}/")]
    return PREFIXES[max(prefixes, key=len)] if prefixes else None


def shared_out(count: int, rooms: Sequence[str]) -> dict[str, int]:
    """The rooms' numbers of mutants. A room's is the same whichever other rooms are asked for."""
    total = sum(SHARES.values())
    exact = {room: count * share / total for room, share in SHARES.items()}
    numbers = {room: int(number) for room, number in exact.items()}
    largest_rest = sorted(SHARES, key=lambda room: numbers[room] - exact[room])
    for room in largest_rest[: count - sum(numbers.values())]:
        numbers[room] += 1
    return {room: numbers[room] for room in SHARES if room in rooms}
