"""The numbers under which operators see engines of other machines, on the page, in `/admin/replicas` and in metrics.

Always: the server's own engines have the first numbers, a new member the least that is free. A member that is gone has
its number back if it comes again soon. So there are no more numbers than members at a time, but for those just gone.
"""

from collections.abc import Iterable, Mapping
from itertools import count

KEPT_S = 60.0  # after a member was last listed


class Numbers:
    def __init__(self, first: int, known: Mapping[str, int] | None = None) -> None:
        """`first`: after the server's own. `known`: of the list before this one."""
        self._first = first
        self.by_address: dict[str, int] = dict(known or {})
        self._listed: dict[str, float] = {}  # when each was last listed

    def give(self, addresses: Iterable[str], now: float) -> bool:
        """To those that are listed now; whether anything has changed."""
        before = dict(self.by_address)
        for address in self.by_address:
            self._listed.setdefault(address, now)
        listed = list(addresses)
        self._listed |= dict.fromkeys(listed, now)
        for address in [each for each, at in self._listed.items() if now - at >= KEPT_S]:
            del self._listed[address], self.by_address[address]
        taken = set(self.by_address.values())
        for address in listed:
            if address not in self.by_address:
                self.by_address[address] = next(number for number in count(self._first) if number not in taken)
                taken.add(self.by_address[address])
        return self.by_address != before
