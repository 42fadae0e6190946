"""Which replicas there should be, and what became of each: a line for every change.

Always: a replica that waits for room keeps none of the others waiting. Knows neither Ray nor a clock: `Places` is what
places them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from chairlift.core.routing.scaling import Scaling
from chairlift.serving.placing.placed_node import NodeState

_AGAIN_S = 10.0  # before what could not be placed is tried again


class Stage(Enum):
    WAITING = "waiting"  # for room
    STARTING = "starting"  # on its way, perhaps again
    RUNNING = "running"
    FAILED = "failed"  # for good
    SILENT = "silent"  # asked, and too busy to have answered yet


@dataclass(frozen=True, slots=True)
class Place:
    stage: Stage
    node: NodeState | None = None  # of one that runs
    reason: str = ""  # of one that failed


class Places(Protocol):
    def place(self, replica: int) -> None: ...

    def look(self, replica: int) -> Place: ...

    def drain(self, replica: int) -> None: ...

    def remove(self, replica: int) -> None: ...


@dataclass(slots=True)
class _Known:
    stage: Stage = Stage.STARTING
    host: str = ""
    num_ends: int = 0
    is_leaving: bool = False
    again: float | None = None  # when to place it again


class Placement:
    def __init__(
        self, places: Places, count: int, scaling: Scaling | None, say: Callable[[str], None], needs: str
    ) -> None:
        """`needs`: of one replica, in words."""
        self._places, self._scaling, self._say, self._needs = places, scaling, say, needs
        self._known: dict[int, _Known] = {}
        if scaling is not None:
            count = max(scaling.least, min(scaling.most, count))
        for _ in range(count):
            self._add()

    def step(self, now: float, load: float | None) -> None:
        """To be called every second. `load`: of all replicas, in tokens; None: not heard."""
        if self._scaling is not None and load is not None:
            self._scale(self._scaling, load, now)
        for replica, known in list(self._known.items()):
            if known.again is None:
                self._hear(replica, known, self._places.look(replica), now)
            elif now >= known.again:
                known.again = None
                self._places.place(replica)

    def end(self) -> None:
        for replica in list(self._known):
            self._places.remove(replica)
        self._known.clear()

    def _add(self) -> int:
        replica = next(i for i in range(len(self._known) + 1) if i not in self._known)
        self._known[replica] = _Known()
        self._places.place(replica)
        return replica

    def _scale(self, scaling: Scaling, load: float, now: float) -> None:
        staying = [replica for replica, known in self._known.items() if not known.is_leaving]
        wanted = scaling.want(load, len(staying), now)
        if wanted == len(staying):
            return
        self._say(
            f"{wanted} replica{'s' if wanted > 1 else ''} instead of {len(staying)}, for a load of {load:.0f} tokens"
        )
        for _ in range(wanted - len(staying)):
            self._add()
        for replica in sorted(staying, key=self._worth)[: max(0, len(staying) - wanted)]:
            known = self._known[replica]
            known.is_leaving = True
            if known.stage is Stage.RUNNING:
                self._places.drain(replica)
            else:
                self._remove(replica)

    def _worth(self, replica: int) -> tuple[bool, int]:
        """Those that do not run leave first, then the last ones."""
        return self._known[replica].stage is Stage.RUNNING, -replica

    def _remove(self, replica: int) -> None:
        self._places.remove(replica)
        del self._known[replica]

    def _hear(self, replica: int, known: _Known, place: Place, now: float) -> None:
        before = known.stage
        if place.stage is Stage.SILENT:  # says nothing of one that runs
            known.stage = before if before is Stage.RUNNING else Stage.STARTING
            return
        known.stage = place.stage
        if known.is_leaving and (place.node is None or place.node.has_left):
            self._remove(replica)
        elif place.stage is Stage.FAILED:
            self._say(f"replica {replica} cannot be placed: {place.reason}; trying again in {_AGAIN_S:.0f} s")
            self._places.remove(replica)
            self._known[replica] = _Known(again=now + _AGAIN_S)
        elif place.node is not None:
            self._hear_node(replica, known, place.node, before)
        elif before is Stage.RUNNING:
            self._say(f"replica {replica} is gone from {known.host}; Ray places it again")
        if place.stage is Stage.WAITING and before is not Stage.WAITING and not known.is_leaving:
            self._say(f"replica {replica} waits: Ray has no machine with {self._needs} free")

    def _hear_node(self, replica: int, known: _Known, node: NodeState, before: Stage) -> None:
        if before is not Stage.RUNNING:
            known.host, known.num_ends = node.host, 0
            self._say(f"replica {replica} starts on {node.host}")
        if node.num_ends > known.num_ends and not known.is_leaving:
            self._say(f"the node of replica {replica} on {node.host} ended and is started again: {node.last_line}")
        known.num_ends = node.num_ends
