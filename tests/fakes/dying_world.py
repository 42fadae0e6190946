"""A world whose engines die: of poisoned requests, by somebody's hand, or of everything. Real clients, notes and
quarantine, in one process and without a wire.

`POISON` in a prompt crashes the engine that computes it, `HUNGRY` has it killed, as for want of memory.
"""

from collections.abc import Callable
from pathlib import Path

from chairlift.core.plan import StepPlan
from chairlift.live.client import EngineClient
from chairlift.live.messages import Abort, Proven, Ready, Submit, ToEngine
from chairlift.live.processes import Deaths
from chairlift.live.quarantine import Quarantine
from chairlift.live.step_note import NotedRunner, StepNote
from fakes.ledger import LedgerRunner
from fakes.switchboards import info_of, ledger_switchboard

POISON, HUNGRY = 666, 667


class Ended(Exception):
    def __init__(self, was_killed: bool) -> None:
        self.was_killed = was_killed


class _Mortal(LedgerRunner):
    is_killed: Callable[[], bool]  # asked in each step
    is_broken = False

    def submit(self, plan: StepPlan) -> None:
        if self.is_killed():
            raise Ended(was_killed=True)
        for chunk in plan.chunks:
            if self.is_broken or POISON in chunk.request.prompt:
                raise Ended(was_killed=False)
            if HUNGRY in chunk.request.prompt:
                raise Ended(was_killed=True)
        super().submit(plan)


class NearClient(EngineClient):
    """What it says is kept until somebody asks for it."""

    def __init__(self, name: str) -> None:
        super().__init__("", name)
        self.name = name.encode()
        self.said: list[ToEngine] = []

    def _send(self, message: ToEngine) -> None:
        self.said.append(message)


class DyingWorld:
    def __init__(
        self, path: Path, is_killed: Callable[[], bool] = lambda: False, depth: int = 1, is_broken: bool = False
    ) -> None:
        self.note = StepNote(path)  # the parent's
        self.clients = [NearClient(name) for name in ("one", "two")]
        self.num_deaths = 0
        self._deaths = Deaths()
        self._is_killed = is_killed
        self._depth = depth
        self._is_broken = is_broken
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
        note, switchboard = StepNote(self.note.path), ledger_switchboard(_Mortal)
        left = note.take()
        runner = switchboard.engine.runner
        assert isinstance(runner, _Mortal)
        runner.is_killed, runner.depth, runner.is_broken = self._is_killed, self._depth, self._is_broken
        switchboard.engine.runner = NotedRunner(runner, note, switchboard.who)
        quarantine = Quarantine(switchboard)
        for client in self.clients:
            client.said.clear()
            client._hear(Ready(info_of(switchboard), left.keys.get(client.name, []), left.is_alone, left.was_killed))
        self._listen(quarantine)
        while quarantine.has_work:
            news = quarantine.step()
            for client in self.clients:
                for output in news.get(client.name, []):
                    client._generations[output.key].put(output)
            self._listen(quarantine)

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
