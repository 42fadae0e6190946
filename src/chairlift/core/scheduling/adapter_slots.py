"""Which adapters are in which slots of the device, and which wait for one.

Requests of an adapter in a slot enter freely. One of another adapter takes a slot that no request uses, the least
recently used first; if there is none, its adapter queues, and its requests wait beside the policy's order:

    slots    a  b  c      all in use; d and e queue
    closed   a  b         as many as queue, the first that have had their turn: their new requests queue too
    a ends   d  b  c      the slot goes to the first in the queue, and this plan loads d, beside its chunks
    next     d  b  c      d's requests wait in the policy's order again

While others run, an adapter is loaded by the plan before the one that its requests enter: its copy takes place beside a
step, and none waits for it. A plan loads few, so that they are there when the step ends. Without others there is
nothing to wait for, and the same plan does both.

Always: a request that runs or was preempted has its adapter in a slot, and what its chunks rely on was loaded by their
plan or one before. None waits for ever: a slot that others wait for lets in `_TURN` requests at most. Deterministic;
knows no matrices.
"""

from collections.abc import Container, Iterable

from chairlift.core.plan import AdapterSlot, Chunk

_TURN = 32  # requests that a slot lets in before it closes for others
_MAX_LOADS = 4  # of a plan, while others run: of rank 16 and 7B each takes 2 ms of the bus


class AdapterSlots:
    def __init__(self, num_slots: int) -> None:
        self.live: dict[int, int] = {}  # live requests of each adapter
        self.queue: dict[int, None] = {}  # adapters that wait for a slot, in order
        self._free = list(range(num_slots - 1, -1, -1))
        self._slots: dict[int, int] = {}  # by adapter, the longest there first
        self._entered: dict[int, int] = {}  # requests that the slot has let in for its adapter
        self._used: dict[int, None] = {}  # adapters in slots, least recently used first
        self._loaded: dict[int, None] = {}  # adapters that issued plans have loaded

    @property
    def num_slots(self) -> int:
        return len(self._free) + len(self._slots)

    def add(self, adapter: int) -> None:
        """A request of it was added."""
        if adapter:
            self.live[adapter] = self.live.get(adapter, 0) + 1

    def remove(self, adapter: int) -> None:
        """A request of it has ended."""
        if adapter:
            self.live[adapter] -= 1
            if not self.live[adapter]:
                del self.live[adapter]
                self.queue.pop(adapter, None)

    def can_enter(self, adapter: int, held: Iterable[int], is_busy: bool) -> bool:
        """Whether a waiting request of it may be admitted. `held`: adapters that running and preempted requests use,
        looked at only where that matters. `is_busy`: others run."""
        if not adapter:
            return True
        if adapter in self._slots:
            return (adapter in self._loaded or not is_busy) and not self._is_closed(adapter)
        return not is_busy and not self.queue and self._victim(dict.fromkeys(held)) is not None

    def wait(self, adapter: int, held: Iterable[int]) -> None:
        """A request of it waits. It gets a slot if there is one and none has waited longer, and queues until it is
        there."""
        if adapter not in self._slots and not self._num_outside:
            self._take_ahead(adapter, dict.fromkeys(held))
        self.queue.setdefault(adapter)

    def enter(self, adapter: int, held: Iterable[int]) -> None:
        """A request of it is admitted."""
        if not adapter:
            return
        if adapter not in self._slots:
            self._take(adapter, self._victim(dict.fromkeys(held)))
        self._entered[adapter] += 1
        self._use(adapter)

    def turn(self, held: Iterable[int], is_busy: bool) -> list[int]:
        """Gives slots to adapters that queue, as far as there are; those whose requests may enter."""
        known, ready, is_full = dict.fromkeys(held), list[int](), False
        for adapter in list(self.queue):
            if adapter not in self._slots:
                is_full = is_full or not self._take_ahead(adapter, known)  # later ones do not go before it
                if is_full:
                    continue
            if (is_busy and adapter not in self._loaded) or self._is_closed(adapter):
                continue
            del self.queue[adapter]
            ready.append(adapter)
        return ready

    def _take_ahead(self, adapter: int, held: Container[int]) -> bool:
        """A slot for an adapter that queues, if there is one that the next plan can load."""
        victim = self._victim(held)
        if victim is None or len(self._slots.keys() - self._loaded.keys()) >= _MAX_LOADS:
            return False
        self._take(adapter, victim)
        return True

    def of_plan(self, chunks: Iterable[Chunk]) -> tuple[tuple[AdapterSlot, ...], tuple[AdapterSlot, ...]]:
        """The adapters of a plan's chunks, and those that the plan has to load: for these, and for the next plan."""
        used = dict.fromkeys(chunk.request.attributes.adapter for chunk in chunks)
        used.pop(0, None)
        found = tuple(AdapterSlot(adapter, self._slots[adapter]) for adapter in used)
        lacking = [adapter for adapter in self._slots if adapter not in self._loaded and adapter in self.live]
        self._loaded.update(dict.fromkeys(lacking))
        return found, tuple(AdapterSlot(adapter, self._slots[adapter]) for adapter in lacking)

    @property
    def is_empty(self) -> bool:
        return not self._slots

    def undo(self, loads: Iterable[AdapterSlot]) -> None:
        """The plan that was to load them was not carried out."""
        for adapter, _ in loads:
            self._loaded.pop(adapter, None)

    def check(self, held: Iterable[int]) -> None:
        """Raise AssertionError unless adapters in use are in slots, each in its own."""
        assert all(adapter in self._slots for adapter in held), "an adapter in use is in no slot"
        assert len({*self._slots.values(), *self._free}) == self.num_slots, "two adapters share a slot"

    @property
    def _num_outside(self) -> int:
        """Adapters that queue and have no slot."""
        return sum(each not in self._slots for each in self.queue)

    def _is_closed(self, adapter: int) -> bool:
        """Whether it has had its turn and others wait for a slot."""
        num_outside = self._num_outside
        if not num_outside:
            return False
        had_turn = [each for each in self._slots if self._entered[each] >= _TURN]
        return adapter in had_turn[:num_outside]

    def _victim(self, held: Container[int]) -> int | None:
        """The adapter whose slot can be taken; 0: a free one; None: none can. A slot that was given to an adapter that
        queued is kept until a request of it has entered, or none is left."""
        if self._free:
            return 0
        for adapter in self._used:
            if adapter not in held and (self._entered[adapter] or adapter not in self.live):
                return adapter
        return None

    def _take(self, adapter: int, victim: int | None) -> None:
        assert victim is not None
        if victim:
            del self._used[victim], self._entered[victim]
            self._loaded.pop(victim, None)
            self._free.append(self._slots.pop(victim))
        self._slots[adapter] = self._free.pop()
        self._entered[adapter] = 0
        self._use(adapter)

    def _use(self, adapter: int) -> None:
        self._used.pop(adapter, None)
        self._used[adapter] = None
