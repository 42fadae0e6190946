"""Hooks of a runner: the logits that tokens are chosen from, and signs of life within a long step.

Who looks on comes after the model was loaded, so hooks are attributes that are set then. Unset they cost nothing.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.plan import AdapterSlot
from chairlift.core.ports import HostMemory, Runner
from chairlift.runner.machine.to_device import on_host, to_device

_MAX_IN_FLIGHT = 8  # steps whose rows have not arrived; bounds pinned memory


class LogitsHook(Protocol):
    def __call__(self, requests: Sequence[RequestId], positions: Sequence[int], logits: Tensor) -> None:
        """Row i of logits [S, vocab] follows the token at positions[i], from 0, of requests[i]. Logits are overwritten
        later: rows to keep are copied before this returns, on a GPU in the stream's order."""


@runtime_checkable
class ShowsLogits(Runner, Protocol):
    """A runner that shows the logits of every sample, before penalties, biases and filters."""

    on_logits: LogitsHook | None


@runtime_checkable
class ShowsLife(Runner, Protocol):
    """A runner with long steps, that calls a hook within them: between masks, and on a CPU before each layer."""

    on_beat: Callable[[], None]


@runtime_checkable
class MovesBlocks(Runner, Protocol):
    """A runner whose host memory can be read and written from outside."""

    @property
    def host_memory(self) -> HostMemory | None: ...


class LoadsAdapters(Protocol):
    """The slots of a device for adapters."""

    def load(self, loads: Sequence[AdapterSlot]) -> None:
        """Copies adapters of the host to their slots, after the steps before; steps that use them wait for them."""


class LogitsRow(NamedTuple):
    request: RequestId
    position: int
    row: NDArray[np.floating]  # [vocab]


class _InFlight(NamedTuple):
    owners: list[tuple[RequestId, int]]
    rows: Tensor  # on the host if its device is a GPU
    arrived: torch.cuda.Event | None


class LogitsRecorder:
    """Keeps the rows that are wanted, by request and position. On a GPU it does not wait while steps are launched."""

    def __init__(self, wanted: Callable[[RequestId, int], bool]) -> None:
        self._wanted = wanted
        self._in_flight: deque[_InFlight] = deque()
        self._kept: list[LogitsRow] = []

    def __call__(self, requests: Sequence[RequestId], positions: Sequence[int], logits: Tensor) -> None:
        indices = [i for i, row in enumerate(zip(requests, positions, strict=True)) if self._wanted(*row)]
        if not indices:
            return
        rows = logits.index_select(0, to_device(np.array(indices), logits.device))  # a copy
        arrived = None
        if logits.device.type == "cuda":
            rows = on_host(rows.shape, rows.dtype, rows.device).copy_(rows, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        self._in_flight.append(_InFlight([(requests[i], positions[i]) for i in indices], rows, arrived))
        if len(self._in_flight) > _MAX_IN_FLIGHT:
            self._land()

    def take(self, is_waiting: bool = True) -> Iterator[LogitsRow]:
        """Rows since the last call; without waiting, only those that have arrived."""
        while self._in_flight:
            arrived = self._in_flight[0].arrived
            if not is_waiting and arrived is not None and not arrived.query():
                break
            self._land()
        kept, self._kept = self._kept, []
        return iter(kept)

    def _land(self) -> None:
        owners, rows, arrived = self._in_flight.popleft()
        if arrived is not None:
            arrived.synchronize()
        values = rows.cpu().numpy()
        if arrived is not None:
            values = values.copy()  # pinned memory is scarce
        self._kept += [
            LogitsRow(request, position, row) for (request, position), row in zip(owners, values, strict=True)
        ]
