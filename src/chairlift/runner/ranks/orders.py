"""What the first rank tells the others, as bytes over a pipe each: one message for all that a step takes of a model.

Always: every rank carries orders out in the order in which they were sent, the first rank too, so that their sums meet.
An order is self-contained: tokens sampled in the step before are in it. Where a pipe is closed its rank ends.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from chairlift.core.limits import Limits
from chairlift.core.ports import DeviceLost
from chairlift.runner.ops import Batch, StateWrite
from chairlift.runner.torch.runner import first_line

_ARRAYS = ("tokens", "positions", "slots", "starts", "contexts", "tables")  # of a batch

Moves = list[tuple[int, int]]


class Integers(msgspec.Struct, array_like=True):
    """A tensor of them."""

    data: bytes
    shape: tuple[int, ...]
    is_wide: bool  # 64 bits, else 32


class View(msgspec.Struct, array_like=True):
    """A batch as a group of layers sees it that does not keep all tokens."""

    slots: Integers | None  # None: those of the batch
    tables: Integers
    state_writes: dict[int, list[tuple[int, Integers]]]
    num_tile_pages: int


class Begin(msgspec.Struct, array_like=True, tag=0):
    """Make the KV cache of a runner."""

    limits: Limits
    num_host_blocks: int
    max_graphs: int


class Move(msgspec.Struct, array_like=True, tag=1):
    """Move blocks of the cache."""

    swap_outs: Moves
    swap_ins: Moves
    copies: Moves


class Compute(msgspec.Struct, array_like=True, tag=2):
    """Compute a batch up to the head's inputs."""

    arrays: list[Integers]
    num_decodes: int
    max_context: int
    logit_rows: Integers | None
    views: list[View]


class Head(msgspec.Struct, array_like=True, tag=3):
    """Compute logits of so many rows, which the first rank shares."""

    num_rows: int


class Launch(msgspec.Struct, array_like=True, tag=4):
    """Launch a step input on a GPU."""

    step: bytes
    uses_graphs: bool


class Finish(msgspec.Struct, array_like=True, tag=5):
    """Choose the tokens of the step that was launched."""

    masks: bytes | None  # int32 [num_masks, words]
    num_masks: int = 0


class Capture(msgspec.Struct, array_like=True, tag=6):
    """Capture one more of the likely steps."""


Order = Begin | Move | Compute | Head | Launch | Finish | Capture


class Orders:
    """The first rank's end of the pipes."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes
        self._encoder = msgspec.msgpack.Encoder()

    def send(self, order: Order) -> None:
        data = self._encoder.encode(order)
        try:
            for pipe in self._pipes:
                pipe.send_bytes(data)
        except OSError as error:
            raise DeviceLost(f"a rank is gone ({error.strerror or error})") from error


@contextmanager
def lost_on_error(others: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """For all that ranks do together: where one of them fails, the others wait for it in vain. others: errors that
    kernels raise."""
    failures: tuple[type[Exception], ...] = (RuntimeError, MemoryError, *others)
    try:
        yield
    except failures as error:
        raise DeviceLost(f"a step failed on some ranks: {first_line(error)}") from error


def received(pipe: Connection) -> Iterator[Order]:
    """Orders until the first rank closes the pipe."""
    decoder: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
    while True:
        try:
            data = pipe.recv_bytes()
        except (EOFError, ConnectionError):
            return
        yield decoder.decode(data)


def compute(batch: Batch) -> Compute:
    return Compute(
        [_integers(getattr(batch, name)) for name in _ARRAYS],
        batch.num_decodes,
        batch.max_context,
        None if batch.logit_rows is None else _integers(batch.logit_rows),
        [_view(view, batch) for view in batch.views],
    )


def batch_of(order: Compute, device: torch.device) -> Batch:
    arrays: dict[str, Any] = {
        name: _tensor(each, device) for name, each in zip(_ARRAYS, order.arrays, strict=True)
    }  # fmt: skip
    rows = None if order.logit_rows is None else _tensor(order.logit_rows, device)
    batch = Batch(**arrays, num_decodes=order.num_decodes, max_context=order.max_context, logit_rows=rows)
    return replace(batch, views=tuple(_as_seen(batch, view, device) for view in order.views)) if order.views else batch


def _view(view: Batch, batch: Batch) -> View:
    writes = {
        chunk: [(write.position, _integers(write.pages)) for write in own] for chunk, own in view.state_writes.items()
    }
    slots = None if view.slots is batch.slots else _integers(view.slots)
    return View(slots, _integers(view.tables), writes, view.num_tile_pages)


def _as_seen(batch: Batch, view: View, device: torch.device) -> Batch:
    return replace(
        batch,
        slots=batch.slots if view.slots is None else _tensor(view.slots, device),
        tables=_tensor(view.tables, device),
        state_writes={
            chunk: [StateWrite(position, _tensor(pages, device)) for position, pages in own]
            for chunk, own in view.state_writes.items()
        },
        num_tile_pages=view.num_tile_pages,
    )


def _integers(tensor: Tensor) -> Integers:
    return Integers(tensor.cpu().numpy().tobytes(), tuple(tensor.shape), tensor.dtype is torch.int64)


def _tensor(integers: Integers, device: torch.device) -> Tensor:
    found = np.frombuffer(integers.data, np.int64 if integers.is_wide else np.int32)
    return torch.from_numpy(found.reshape(integers.shape).copy()).to(device)
