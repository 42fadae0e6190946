"""Which replicas have read an adapter: a request goes to one of these, unless they are much busier than another.

Always: known from the requests that were sent, so a replica may have forgotten one meanwhile; then it reads it again.
"""

from collections import OrderedDict

from chairlift.core.routing.replicas import Replicas, members

_MAX_ADAPTERS = 10_000
_BUSIER_TOKENS = 2048  # of load that reading and keeping another copy of an adapter is worth


class AdapterHomes:
    def __init__(self) -> None:
        self._homes: OrderedDict[int, int] = OrderedDict()  # bits of replicas, least recently used first

    def add(self, adapter: int, replica: int) -> None:
        self._homes[adapter] = self._homes.get(adapter, 0) | 1 << replica
        self._homes.move_to_end(adapter)
        if len(self._homes) > _MAX_ADAPTERS:
            self._homes.popitem(last=False)

    def clear(self, replica: int) -> None:
        """Another engine takes its place."""
        for adapter in self._homes:
            self._homes[adapter] &= ~(1 << replica)

    def among(self, adapter: int, among: int, replicas: Replicas) -> int:
        """Those of `among` that have the adapter, if they are not much busier than the others; else all."""
        homes = self._homes.get(adapter, 0) & among
        if not homes or homes == among:
            return among
        least = min(replicas.load(replica) for replica in members(among))
        near = [replica for replica in members(homes) if replicas.load(replica) <= least + _BUSIER_TOKENS]
        return sum(1 << replica for replica in near) or among
