"""What passes between the process that counts and the client processes, through pipes."""

from dataclasses import dataclass
from typing import NamedTuple

from chairlift.bench.record import ClientRecord
from chairlift.bench.target import Address, Api


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    index: int  # in the workload
    arrival_s: float  # after the start
    prompt_tokens: int
    output_tokens: int
    request: bytes  # as it will be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one client process is to do."""

    address: Address
    peer: str  # the address's host as a number, so that nothing is looked up
    api: Api
    requests: list[PreparedRequest]
    warm_up: list[PreparedRequest]
    concurrency: int  # 0: an open loop
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Begin:
    """The requests of the workload, or those before them that are not counted, from a moment of the clock on."""

    is_warm_up: bool
    at: float


class Stop(NamedTuple):
    """Whatever is under way is cut."""


class ClientReady(NamedTuple):
    """It has its share."""


@dataclass(frozen=True, slots=True)
class ClientProgress:
    num_sent: int
    num_waiting: int  # for their first token
    num_running: int
    num_chunks: int
    records: list[ClientRecord]  # that ended since the last one


@dataclass(frozen=True, slots=True)
class ClientUsage:
    """What a client process itself needed: the last that it says of a phase."""

    seconds: float
    processor_s: float
    lags_s: bytes  # doubles: by how much a timer every 10 ms was late
