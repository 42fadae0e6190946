"""Copies adapters of the host to their slots beside the steps: by threads, in pieces through pinned memory.

    engine    begin(slot)   step n, which does not use it ........   arrive(slot)   step n + 1, which does
    threads      |  until steps before n have ended  |  pieces  |

Always: a slot is written after the steps that were launched before, as one of them may use what it held, and in the
order of `begin`; it is used after `arrive`. Adapters lie in memory that is not pinned: nothing can be launched while
the driver pins some.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from chairlift.runner.cuda.adapters.pieces import Piece, SlotAdapter, pieces
from chairlift.runner.weights.transfer import PIECE, Buffer, Lanes, Launch, put


class SlotLoading:
    def __init__(self, bank: Tensor, lanes: Lanes | None) -> None:
        """`bank`: [slots, numbers]. `lanes`: to its device; None: it lies in the host's memory."""
        self._bank = bank
        self._lanes = lanes
        self._thread = ThreadPoolExecutor(1, "slots")
        self._under_way: dict[int, Future[None]] = {}

    def begin(self, slot: int, adapter: SlotAdapter) -> None:
        """Without waiting."""
        after = None if self._lanes is None else self._lanes.mark()
        self._under_way[slot] = self._thread.submit(self._copy, slot, adapter, after)

    def arrive(self, slots: Iterable[int]) -> None:
        """Waits until these are there. An error stays with its slot."""
        for slot in slots if self._under_way else ():
            if slot in self._under_way:
                self._under_way[slot].result()
                del self._under_way[slot]

    @torch.inference_mode()
    def _copy(self, slot: int, adapter: SlotAdapter, after: torch.cuda.Event | None) -> None:
        target = self._bank[slot, : adapter.num_numbers]
        if self._lanes is None:
            target.zero_()
            for each in adapter.tensors:
                each.write(each.rows, target)
        else:
            empty = self._lanes.run(target.zero_, after)
            self._lanes.carry(pieces(adapter.tensors, PIECE), partial(_fill, target), empty)


def _fill(target: Tensor, piece: Piece, buffer: Buffer) -> Launch:
    first = 0
    for each in piece:
        put(each.rows, buffer.pinned[first:])
        first += each.num_bytes
    return partial(_place, target, piece, buffer, first)


@torch.inference_mode()
def _place(target: Tensor, piece: Piece, buffer: Buffer, count: int) -> None:
    """From so many bytes of a buffer, which the device fetches as a whole."""
    assert buffer.fetched is not None
    buffer.fetched[:count].copy_(buffer.pinned[:count], non_blocking=True)
    first = 0
    for each in piece:
        rows = buffer.fetched[first : first + each.rows.nbytes].view(each.rows.dtype).view(each.rows.shape)
        each.write(rows, target)
        first += each.num_bytes
