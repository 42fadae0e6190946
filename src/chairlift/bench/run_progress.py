"""The progress of a run: the client processes' reports so far, added up."""

from dataclasses import dataclass, field

from chairlift.bench.messages import ClientProgress
from chairlift.bench.record import ClientRecord, Ending


@dataclass(slots=True)
class RunProgress:
    num_planned: int
    is_warm_up: bool = False
    seconds: float = 0.0  # since the start
    records: list[ClientRecord] = field(default_factory=list)  # in the order in which they ended
    counts: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    latest: dict[int, ClientProgress] = field(default_factory=dict)  # of each client process

    def add(self, client: int, progress: ClientProgress) -> None:
        self.latest[client] = progress
        self.records += progress.records
        for record in progress.records:
            self.counts[record.ending] += 1

    @property
    def num_waiting(self) -> int:
        return sum(progress.num_waiting for progress in self.latest.values())

    @property
    def num_running(self) -> int:
        return sum(progress.num_running for progress in self.latest.values())

    @property
    def num_chunks(self) -> int:
        return sum(progress.num_chunks for progress in self.latest.values())
