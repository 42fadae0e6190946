"""A world whose engines die: of poisoned requests, killed from outside, or of everything. Real clients, notes and
quarantine, in one process and without a wire. It is no `worlds.world.World`: requests arrive by clients, and what is
checked is which of them is blamed.

`POISON` in a prompt crashes the engine that computes it, `HUNGRY` has it killed, as for want of memory; `HARMS` has
more, which do so outside any step.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import Observer
from chairlift.core.request import Request
from chairlift.live.processes.supervisor import Deaths
from chairlift.live.recovery.quarantine import Quarantine
from chairlift.live.recovery.step_note import NotedRunner, StepNote
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.messages import Abort, Proven, Ready, Submit, ToEngine
from fakes.drafts import RandomDrafter
from fakes.ledger import LedgerRunner
from fakes.switchboards import VOCAB_SIZE, info_of, ledger_switchboard

POISON, HUNGRY = 666, 667
HARMS = {  # what a token in a prompt does to the engine: where, and whether it is killed
    POISON: ("run", False),
    HUNGRY: ("run", True),
    668: ("taken in", False),
    669: ("taken in", True),
    670: ("planned", False),
    671: ("committed", False),
}


class Ended(Exception):
    def __init__(self, was_killed: bool) -> None:
        self.was_killed = was_killed


Suffer = Callable[[str, Sequence[Request]], None]


class _Mortal(LedgerRunner):
    is_killed: Callable[[], bool]  # asked in each step
    suffer: Suffer

    def submit(self, plan: StepPlan) -> None:
        if self.is_killed():
            raise Ended(was_killed=True)
        self.suffer("run", [chunk.request for chunk in plan.chunks])
        super().submit(plan)


class _Frail(Observer):
    """Looks on, and dies of what it sees."""

    def __init__(self, suffer: Suffer) -> None:
        self._suffer = suffer

    def added(self, samples: tuple[Request, ...], now: float) -> None:
        self._suffer("taken in", samples)

    def planned(self, plan: StepPlan | None, now: float) -> None:
        if plan is not None:
            self._suffer("planned", [chunk.request for chunk in plan.chunks])

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None:
        self._suffer("committed", [chunk.request for chunk in plan.chunks])


class NearClient(EngineClient):
    """Keeps its output until it is asked for."""

    def __init__(self, name: str) -> None:
        super().__init__([""], name)
        self.name = name.encode()
        self.said: list[ToEngine] = []
        self.link = self.replicas._places[0].link
        self.link.send = self.said.append  # type: ignore[method-assign]


class DyingWorld:
    def __init__(
        self,
        path: Path,
        is_killed: Callable[[], bool] = lambda: False,
        depth: int = 1,
        broken: str | None = None,
        max_running: int = 64,
        max_drafts: int = 0,
    ) -> None:
        """`broken`: where every engine crashes, whatever the requests are."""
        self.note = StepNote(path)  # the parent's
        self.clients = [NearClient(name) for name in ("one", "two")]
        self.num_deaths = 0
        self._deaths = Deaths()
        self._is_killed = is_killed
        self._depth = depth
        self._broken = broken
        self._max_running = max_running
        self._max_drafts = max_drafts
        self.num_accepted = 0  # drafts, of all engines
        info = info_of(ledger_switchboard())
        for client in self.clients:
            client.info = info  # as if there had been an engine already

    def run(self) -> None:
        """Until all work is done; raises when the parent would give up."""
        while True:
            try:
                return self._live()
            except Ended as ended:
                self.num_deaths += 1
                self._deaths.add("engine", 0.0, self.note.progress)
                self.note.tell_end(ended.was_killed)

    def _live(self) -> None:
        drafter = RandomDrafter(self._max_drafts, VOCAB_SIZE) if self._max_drafts else None
        limits = {"max_running": self._max_running, "max_drafts": self._max_drafts}
        note, switchboard = StepNote(self.note.path), ledger_switchboard(_Mortal, drafter=drafter, **limits)
        left = note.take()
        runner = switchboard.engine.runner
        assert isinstance(runner, _Mortal)
        runner.is_killed, runner.suffer, runner.depth = self._is_killed, self._suffer, self._depth
        switchboard.engine.observer = _Frail(self._suffer)
        switchboard.engine.runner = NotedRunner(runner, note, switchboard.recipients.keys_of)
        quarantine = Quarantine(switchboard, note)
        for client in self.clients:
            client.said.clear()
            client.link._hear(
                Ready(info_of(switchboard), left.keys.get(client.name, []), left.is_alone, left.was_killed), 0
            )
        self._listen(quarantine)
        while quarantine.has_work:
            news = quarantine.step()
            for client in self.clients:
                for output in news.get(client.name, []):
                    client._generations[output.key].put(output)
            self._listen(quarantine)
        self.num_accepted += runner.num_accepted
        note.rest()

    def _suffer(self, where: str, requests: Sequence[Request]) -> None:
        if where == self._broken:
            raise Ended(was_killed=False)
        for token in (token for request in requests for token in request.prompt):
            if token in HARMS and HARMS[token][0] == where:
                raise Ended(HARMS[token][1])

    def _listen(self, quarantine: Quarantine) -> None:
        for client in self.clients:
            for message in client.said:
                if isinstance(message, Submit):
                    quarantine.submit(client.name, message)
                elif isinstance(message, Abort):
                    quarantine.abort(client.name, message)
                elif isinstance(message, Proven):
                    self.note.count()
            client.said.clear()
