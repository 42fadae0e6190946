"""Copies adapters of the host to their slots beside the steps: by a thread, in pieces through pinned memory.

    engine    begin(slot)   step n, which does not use it ........   arrive(slot)   step n + 1, which does
    thread       |  until steps before n have ended  |  pieces  |

Always: a slot is written after the steps that were launched before, as one of them may use what it held, and in the
order of `begin`; it is used after `arrive`. Adapters lie in memory that is not pinned: nothing can be launched while
the driver pins some.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from chairlift.runner.weights.transfer import PIECE, CudaLane, carry


class SlotLoading:
    def __init__(self, bank: Tensor, lane: CudaLane | None) -> None:
        """`bank`: [slots, numbers]. `lane`: to its device; None: it lies in the host's memory."""
        self._bank = bank
        self._lane = lane
        self._thread = ThreadPoolExecutor(1, "slots")
        self._under_way: dict[int, Future[None]] = {}

    def begin(self, slot: int, numbers: Tensor) -> None:
        """Without waiting."""
        after = None if self._lane is None else self._lane.mark()
        self._under_way[slot] = self._thread.submit(self._copy, slot, numbers, after)

    def arrive(self, slots: Iterable[int]) -> None:
        """Waits until these are there. An error stays with its slot."""
        for slot in slots if self._under_way else ():
            if slot in self._under_way:
                self._under_way[slot].result()
                del self._under_way[slot]

    @torch.inference_mode()
    def _copy(self, slot: int, numbers: Tensor, after: torch.cuda.Event | None) -> None:
        target = self._bank[slot, : len(numbers)]
        if self._lane is None:
            target.copy_(numbers)
        else:
            carry(self._lane, numbers, target, iter(range(0, len(numbers), PIECE // numbers.itemsize)), after)
