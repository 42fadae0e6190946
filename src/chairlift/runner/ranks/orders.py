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
from chairlift.runner.ops import Batch
from chairlift.runner.torch.runner import first_line

_ARRAYS = ("tokens", "positions", "slots", "starts", "contexts", "tables")  # of a batch
_WIDE = ("tokens", "positions", "slots")  # in 64 bits, the others in 32

Moves = list[tuple[int, int]]


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

    arrays: list[bytes]
    num_decodes: int
    max_context: int
    logit_rows: bytes | None
    views: list[tuple[bytes, bytes]]  # slots and tables of each group of layers with a window


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
    arrays = [_bytes(getattr(batch, name)) for name in _ARRAYS]
    rows = None if batch.logit_rows is None else _bytes(batch.logit_rows)
    views = [(_bytes(view.slots), _bytes(view.tables)) for view in batch.views]
    return Compute(arrays, batch.num_decodes, batch.max_context, rows, views)


def batch_of(order: Compute, device: torch.device) -> Batch:
    def put(data: bytes, is_wide: bool) -> Tensor:
        return torch.from_numpy(np.frombuffer(data, np.int64 if is_wide else np.int32).copy()).to(device)

    arrays: dict[str, Any] = {name: put(data, name in _WIDE) for name, data in zip(_ARRAYS, order.arrays, strict=True)}
    arrays["tables"] = arrays["tables"].view(len(arrays["contexts"]), -1)
    rows = None if order.logit_rows is None else put(order.logit_rows, is_wide=True)
    batch = Batch(**arrays, num_decodes=order.num_decodes, max_context=order.max_context, logit_rows=rows)
    views = (
        replace(batch, slots=put(slots, is_wide=True), tables=put(tables, is_wide=False).view(len(batch.contexts), -1))
        for slots, tables in order.views
    )
    return replace(batch, views=tuple(views)) if order.views else batch


def _bytes(tensor: Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()
