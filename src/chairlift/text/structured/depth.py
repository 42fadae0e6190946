"""How deep a shape leads: what stands one inside of another, references followed.

Always: what leads deeper than is said here never comes to the grammar library, which goes down on its thread's stack
and ends the process where that is full. The time it takes grows with the length of the shape alone.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

# The library takes 6 KiB of the stack for a schema at most, and 3 KiB for a rule or a group. A thread has 8 MiB, or
# 2 MiB where the system sets no limit.
MAX_SCHEMAS, MAX_RULES = 256, 512
T = TypeVar("T", bound=Hashable)


class Links(Generic[T]):
    """What leads to what, and at which level: how many stand one inside of another down to there."""

    def __init__(self) -> None:
        self.levels: defaultdict[T, int] = defaultdict(int)  # the deepest of each
        self._to: defaultdict[T, list[T]] = defaultdict(list)
        self._at: dict[tuple[T, T], int] = {}

    def add(self, owner: T, level: int, other: T | None = None) -> None:
        """Something at this level of the owner, which may lead to another."""
        self.levels[owner] = max(level, self.levels[owner])
        if other is not None:
            self._to[owner].append(other)
            self._at[owner, other] = max(level, self._at.get((owner, other), 0))

    def depth(self) -> int:
        """Of the longest way down; all of a circle are counted, because the way may come by each of them."""
        depths: dict[T, int] = {}
        for part in self._parts():
            inside = sum(self.levels[each] for each in part)
            ways = [(each, other) for each in part for other in self._to[each] if other in depths]
            below = [depths[way[1]] + (self._at[way] if len(part) == 1 else inside) for way in ways]
            depths |= dict.fromkeys(part, max([inside, *below]))
        return max(depths.values(), default=0)

    def sums(self, own: Mapping[T, int], is_counted: Callable[[T], bool]) -> list[int]:
        """What each has of its own, and of all that it leads to, as often as it does. There may be no circles."""
        found: dict[T, int] = {}
        for (each,) in filter(lambda part: is_counted(part[0]), self._parts()):
            found[each] = own.get(each, 0) + sum(found.get(other, 0) for other in self._to[each])
        return list(found.values())

    def circles(self) -> Iterator[list[T]]:
        """Those of which each leads to all."""
        return (part for part in self._parts() if len(part) > 1 or part[0] in self._to[part[0]])

    def _parts(self) -> Iterator[list[T]]:
        """Circles and single ones, behind those that they lead to: by Tarjan's algorithm, without recursion."""
        order: dict[T, int] = {}
        first: dict[T, int] = {}  # of those that have no part yet: the earliest that they lead back to
        pending: list[T] = []
        for root in list(self.levels):
            way = [(root, iter(self._to[root]))] if root not in order else []
            while way:
                each, others = way[-1]
                if each not in order:
                    order[each] = first[each] = len(order)
                    pending.append(each)
                other = next((other for other in others if other not in order or other in first), None)
                if other is not None and other in order:
                    first[each] = min(first[each], order[other])
                elif other is not None:
                    way.append((other, iter(self._to[other])))
                else:
                    way.pop()
                    if way:
                        first[way[-1][0]] = min(first[way[-1][0]], first[each])
                    if first[each] == order[each]:
                        part = _popped(pending, each)
                        for one in part:
                            del first[one]
                        yield part


def _popped(pending: list[T], last: T) -> list[T]:
    part = [pending.pop()]
    while part[-1] != last:
        part.append(pending.pop())
    return part
