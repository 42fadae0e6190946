"""Whether the clients kept up: the resources they used, and the doubts that raises about the figures.

Always: a doubt is one sentence. No doubt means that chunks were timestamped within a few milliseconds of their arrival.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from chairlift.lab.bench.messages import ClientUsage
from chairlift.lab.bench.record import ClientRecord
from chairlift.telemetry.report import Spread

BUSY_SHARE = 0.8  # of a core: above it a process has no room for a burst
MACHINE_BUSY = 0.95
LATE_S = 0.005  # at the 99th percentile
FEW_CHUNKS = 2000  # with fewer, fixed costs outweigh the cost per chunk


@dataclass(frozen=True, slots=True)
class ClientLimit:
    clients: int
    busiest: float  # share of a core that the busiest client process used
    us_per_chunk: float  # processor time of all client processes, requests included
    max_chunks_per_s: float | None  # they can read, each process on its own core; None: too few chunks to tell
    machine: float  # share of this machine's cores that all processes used
    lag_s: Spread  # of timers in the client processes: a chunk's timestamp may be this late
    late_s: Spread  # of requests: sent - due
    doubts: list[str]

    @classmethod
    def of(cls, usages: Sequence[ClientUsage], records: Sequence[ClientRecord], machine: float) -> "ClientLimit":
        lags = array("d")
        for usage in usages:
            lags.frombytes(usage.lags_s)
        busiest = max((usage.processor_s / usage.seconds for usage in usages if usage.seconds > 0), default=0.0)
        num_chunks = sum(len(record.chunks) for record in records)
        us_per_chunk = 1e6 * sum(usage.processor_s for usage in usages) / max(1, num_chunks)
        can_tell = num_chunks >= FEW_CHUNKS and us_per_chunk > 0
        max_chunks_per_s = 1e6 * BUSY_SHARE * len(usages) / us_per_chunk if can_tell else None
        lag_s = Spread.of(lags)
        late_s = Spread.of([record.sent_s - record.due_s for record in records])
        doubts = _doubts(busiest, machine, lag_s, late_s)
        return cls(len(usages), busiest, us_per_chunk, max_chunks_per_s, machine, lag_s, late_s, doubts)


def _doubts(busiest: float, machine: float, lag_s: Spread, late_s: Spread) -> list[str]:
    doubts = [
        (
            busiest > BUSY_SHARE,
            f"a client process used {busiest:.0%} of a core: it limits the figures; raise --clients",
        ),
        (
            machine > MACHINE_BUSY,
            f"the cores of this machine were {machine:.0%} busy, which slows client and server here",
        ),
        (lag_s.p99 > LATE_S, f"chunks may have been timestamped up to {1e3 * lag_s.p99:.1f} ms late (99 % of timers)"),
        (late_s.p99 > LATE_S, f"requests were sent up to {1e3 * late_s.p99:.1f} ms late (99 %), not quite as planned"),
    ]
    return [text for applies, text in doubts if applies]
