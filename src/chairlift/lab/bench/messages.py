"""Messages between the parent process and the client processes, through pipes."""

from dataclasses import dataclass
from typing import NamedTuple

from chairlift.lab.bench.record import ClientRecord
from chairlift.lab.bench.target import TargetServer


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    index: int  # in the workload
    arrival_s: float  # after the start
    prompt_tokens: int
    output_tokens: int
    request: bytes  # as it will be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """A run, or the share of it that one client process sends."""

    target: TargetServer
    peer: str  # the target's IP address, so that clients look nothing up
    trials: dict[str, bytes]  # requests by model or adapter, sent first, in turn: if one fails, there is no run
    requests: list[PreparedRequest]
    warm_up: list[PreparedRequest]
    concurrency: int  # 0: an open loop
    num_clients: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Begin:
    """Send the warm-up or the measured requests, from this moment of the clock on."""

    is_warm_up: bool
    at: float


class Stop(NamedTuple):
    """Cut the requests in flight."""


class ClientReady(NamedTuple):
    """The client process has its share."""


@dataclass(frozen=True, slots=True)
class ClientProgress:
    num_waiting: int  # for their first token
    num_running: int
    num_chunks: int
    records: list[ClientRecord]  # that ended since the last report


@dataclass(frozen=True, slots=True)
class ClientUsage:
    """Resources a client process used in a phase: its last report of the phase."""

    seconds: float
    processor_s: float
    lags_s: bytes  # doubles: how late a timer was, every 10 ms
