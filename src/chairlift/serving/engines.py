"""The engines of one machine: their notes, and how each is started."""

import itertools
from collections.abc import Callable
from functools import partial

from chairlift.build import ResolvedModel
from chairlift.live.processes.child import Child
from chairlift.live.processes.supervisor import Watched
from chairlift.live.recovery.step_note import StepNote
from chairlift.serving.engine import engine_main
from chairlift.serving.process_setup import RunFolder


class Engines:
    def __init__(
        self,
        model: ResolvedModel,
        folder: RunFolder,
        on_restart: Callable[[int], None],
        public: list[str],
        pieces_at: list[str],
    ) -> None:
        """`public`: their addresses for front ends on other machines; none: they are for this one. `pieces_at`: those
        for engines on other machines that fetch keys and values; none: there are no such engines."""
        self.notes = [StepNote(folder.steps(replica)) for replica in range(model.settings.replicas)]
        self._model, self._folder, self._on_restart = model, folder, on_restart
        self._public, self._pieces_at = public, pieces_at
        self._starts = [itertools.count(1) for _ in self.notes]

    def kept(self, timeout_s: float) -> list[Watched]:
        """For their supervisor."""
        return [
            Watched(partial(self._start, replica), lambda note=note: note.last_beat, timeout_s)  # type: ignore[misc]
            for replica, note in enumerate(self.notes)
        ]

    def _start(self, replica: int) -> Child:
        start = next(self._starts[replica])
        if start > 1:
            self._on_restart(replica)
        name = "engine" if len(self.notes) == 1 else f"engine {replica}"
        public = self._public[replica] if self._public else None
        pieces_at = self._pieces_at[replica] if self._pieces_at else None
        return Child(name, engine_main, self._model, self._folder, replica, start, public, pieces_at)

    def progress(self, replica: int) -> int:
        return self.notes[replica].progress

    def tell_end(self, replica: int, was_killed: bool) -> None:
        self.notes[replica].tell_end(was_killed)
