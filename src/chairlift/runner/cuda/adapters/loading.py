"""Copies adapters of the host to their slots beside the steps: by threads, in pieces through pinned memory.

    engine    begin(slot)   step n, which does not use it ........   arrive(slot)   step n + 1, which does
    threads      |  until steps before n have ended  |  pieces  |

Always: a slot is written after the steps that were launched before, as one of them may use what it held, and in the
order of `begin`; it is used after `arrive`. Adapters lie in memory that is not pinned: nothing can be launched while
the driver pins some. Threads do little in Python for a piece: they and the engine would wait for each other.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from chairlift.runner.cuda.adapters.pieces import Piece, SlotAdapter
from chairlift.runner.weights.transfer import Buffer, Lanes, Launch

Unpack = Callable[[Tensor, int, Tensor], object]  # a piece on the slot's device, its records, the slot


class SlotLoading:
    def __init__(self, bank: Tensor, lanes: Lanes | None, unpack: Unpack) -> None:
        """`bank`: [slots, numbers]. `lanes`: to its device; None: it lies in the host's memory."""
        self._bank = bank
        self._lanes = lanes
        self._unpack = unpack
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
            for piece in adapter.pieces:
                memory = torch.empty(piece.num_bytes, dtype=torch.uint8)
                piece.fill(memory.numpy())
                self._unpack(memory, len(piece.records), target)
        else:
            empty = self._lanes.run(target.zero_, after)
            self._lanes.carry(adapter.pieces, partial(self._fill, target), empty)

    def _fill(self, target: Tensor, piece: Piece, buffer: Buffer) -> Launch:
        piece.fill(buffer.pinned.numpy())
        return partial(self._place, target, piece, buffer)

    @torch.inference_mode()
    def _place(self, target: Tensor, piece: Piece, buffer: Buffer) -> None:
        assert buffer.fetched is not None
        fetched = buffer.fetched[: piece.num_bytes]
        fetched.copy_(buffer.pinned[: piece.num_bytes], non_blocking=True)
        self._unpack(fetched, len(piece.records), target)
