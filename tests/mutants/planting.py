"""Picks mutants and plants them.

Always: the same seed picks the same mutants while the functions around them stay as they are, because sites are ordered
by a hash of the seed and their names alone. A room's mutants are spread over the kinds of faults.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.rooms import SHARES, room_of, shared_out
from mutants.sites import Site, sites_of

PACKAGE = "src/chairlift"


@dataclass(frozen=True, slots=True)
class Mutant:
    id: str
    room: str
    site: Site


def pick(root: Path, seed: int, count: int, rooms: Iterable[str] = SHARES) -> list[Mutant]:
    """As many of each room as its share is, in the order of files."""
    found: dict[str, list[Site]] = defaultdict(list)
    for path in sorted((root / PACKAGE).rglob("*.py")):
        if room := room_of(path.relative_to(root / PACKAGE).as_posix()):
            found[room] += sites_of(path.relative_to(root).as_posix(), path.read_text())
    numbers = shared_out(count, tuple(rooms))
    picked = [
        Mutant(site.rank(seed)[-8:], room, site)
        for room, number in numbers.items()
        for site in _spread(found[room], seed)[:number]
    ]
    return sorted(picked, key=lambda mutant: (mutant.site.path, mutant.site.start))


def _spread(sites: Iterable[Site], seed: int) -> list[Site]:
    """The first of each kind, then the second of each, and so on."""
    ordered = sorted(sites, key=lambda site: (site.rank(seed), site.path))
    by_kind: dict[str, list[Site]] = defaultdict(list)
    places: list[tuple[int, str, str, Site]] = []
    for site in ordered:
        places.append((len(by_kind[site.kind]), site.rank(seed), site.path, site))
        by_kind[site.kind].append(site)
    return [place[-1] for place in sorted(places, key=lambda place: place[:3])]


def planted(source: str, site: Site) -> str:
    text = source.encode()
    return (text[: site.start] + site.after.encode() + text[site.end :]).decode()


def watched(source: str, mutants: Sequence[Mutant], call: str) -> str:
    """The same code, which calls `call` with a mutant's id before its site runs."""
    insertions: list[tuple[int, int, int, str]] = []  # at one byte: ends first, and the outer start before the inner
    for mutant in mutants:
        start, end = mutant.site.start, mutant.site.end
        insertions.append((start, 1, -end, f"({call}({mutant.id!r}), ("))
        insertions.append((end, 0, -start, "))[1]"))
    pieces, done, text = [], 0, source.encode()
    for at, _, _, inserted in sorted(insertions):
        pieces += [text[done:at], inserted.encode()]
        done = at
    return b"".join([*pieces, text[done:]]).decode()
