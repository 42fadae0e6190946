"""Calls of kernels written down and played again: a step of few decodes is some 270 of them, and Python takes longer to
make each than the kernel takes to run.

    first step of a size:   Python calls the kernels; arguments and tensors are kept
    later steps:            the batch is copied into the kept one, and one call plays all

Always: what is played is what Python would have called, on the same memory, so the bits are the same. A size is
written down when it first comes, up to MAX_ROWS, whose tensors stay.
"""

from collections.abc import Callable
from ctypes import CDLL
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder, OnLayer, nothing
from chairlift.runner.ops import Batch

MAX_ROWS = 8  # beyond, kernels take longer than Python does

# As in tape.c.
_KERNELS = ("product", "product_rows", "quant_product", "quant_rows", "norm", "activate", "rotate", "attention")
_CALL = np.dtype([("kernel", np.int64), ("at", np.int64, 18)])  # a number that is not whole as its bits


class Calls:
    """The library's kernels as attributes; notes what is called while something is written down."""

    def __init__(self, library: CDLL) -> None:
        self._noted: list[tuple[int, tuple[Any, ...]]] | None = None
        self._kept: list[Tensor] = []
        self.play = library.chairlift_play
        for kernel, name in enumerate(_KERNELS):
            setattr(self, name, self._noting(kernel, getattr(library, f"chairlift_{name}")))

    def __getattr__(self, name: str) -> Callable[..., None]:
        raise AttributeError(name)  # set in __init__; this is for type checkers

    def _noting(self, kernel: int, function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            if self._noted is not None:
                self._noted.append((kernel, arguments))
            function(*arguments)

        return call

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        tensor = torch.empty(shape, dtype=dtype)
        if self._noted is not None:
            self._kept.append(tensor)
        return tensor

    def begin(self) -> None:
        self._noted, self._kept = [], []

    def end(self) -> tuple[NDArray[Any], list[Tensor]]:
        """What was called since `begin`, as tape.c reads it, and the tensors that it reads and writes."""
        noted, kept = self._noted or [], self._kept
        self._noted, self._kept = None, []
        calls = np.zeros(len(noted), _CALL)
        for call, (kernel, arguments) in zip(calls, noted, strict=True):
            call["kernel"] = kernel
            reals = call["at"].view(np.float64)
            for index, argument in enumerate(arguments):
                if isinstance(argument, float):
                    reals[index] = argument
                else:
                    call["at"][index] = argument or 0
        return calls, kept


@dataclass(frozen=True, slots=True)
class Tape:
    """A step of so many decodes."""

    kv: KvCache
    batch: Batch
    residual: Tensor
    hidden: Tensor
    calls: NDArray[Any]
    kept: list[Tensor]


class TapedDecoder:
    """A decoder on native operations whose small steps are played."""

    def __init__(self, decoder: Decoder, calls: Calls) -> None:
        self._decoder = decoder
        self._calls = calls
        self._tapes: dict[int, Tape] = {}  # by number of rows
        self.config, self.ops, self.logits = decoder.config, decoder.ops, decoder.logits

    def hidden(self, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing) -> Tensor:
        num_rows = len(batch.tokens)
        if num_rows > MAX_ROWS or num_rows != batch.num_decodes:
            return self._decoder.hidden(batch, kv, on_layer)
        tape = self._tapes.get(num_rows)
        if tape is None or tape.kv is not kv:
            tape = self._tapes[num_rows] = self._write_down(batch, kv)
            return tape.hidden
        _copy(batch, tape.batch)
        tape.residual.zero_()
        self._calls.play(tape.calls.ctypes.data, len(tape.calls))
        return tape.hidden

    def _write_down(self, batch: Batch, kv: KvCache) -> Tape:
        decoder = self._decoder
        own = _room_for(batch, -(-len(decoder.layers[0].attention.rotation) // kv.block_size))
        _copy(batch, own)
        self._calls.begin()
        try:
            x = decoder.embedding.rows(own.tokens)
            residual = torch.zeros_like(x)
            hidden = decoder.through_layers(x, residual, own, kv)
        finally:
            calls, kept = self._calls.end()
        return Tape(kv, own, residual, hidden, calls, kept)


def _room_for(batch: Batch, width: int) -> Batch:
    """As large, with the longest tables that there are."""
    return replace(
        batch,
        tokens=torch.empty_like(batch.tokens),
        positions=torch.empty_like(batch.positions),
        slots=torch.empty_like(batch.slots),
        starts=torch.empty_like(batch.starts),
        contexts=torch.empty_like(batch.contexts),
        tables=torch.zeros((len(batch.contexts), width), dtype=torch.int32),
    )


def _copy(batch: Batch, to: Batch) -> None:
    to.tokens.copy_(batch.tokens)
    to.positions.copy_(batch.positions)
    to.slots.copy_(batch.slots)
    to.starts.copy_(batch.starts)
    to.contexts.copy_(batch.contexts)
    to.tables[:, : batch.tables.shape[1]] = batch.tables
