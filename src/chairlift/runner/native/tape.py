"""Kernel calls recorded and replayed: a step of few decodes is some 270 calls, each slower in Python than its kernel.

    first step of a size:   Python calls the kernels; arguments and tensors are kept
    later steps:            the batch is copied into the kept one, and one call replays all

Always: the same kernels run on the same memory as without a tape, so the bits are the same. Tapes keep their tensors,
one for each size up to MAX_ROWS.
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
from chairlift.runner.mixers.delta_net import DeltaNet
from chairlift.runner.model import Decoder, Layer, OnLayer, nothing
from chairlift.runner.ops import Attention, Batch

MAX_ROWS = 8  # beyond, kernels take longer than Python
_COPIED = ("tokens", "positions", "slots", "starts", "contexts")  # of a batch, beside the tables

# As in tape.c.
_KERNELS = ("product", "product_rows", "quant_product", "quant_rows", "norm", "activate", "rotate", "attention",
            "route", "experts", "adapters", "gate", "delta_net")  # fmt: skip
_CALL = np.dtype([("kernel", np.int64), ("at", np.int64, 19)])  # floats by their bits


class Calls:
    """The library's kernels as attributes; records their calls between `begin` and `end`."""

    def __init__(self, library: CDLL) -> None:
        self._recorded: list[tuple[int, tuple[Any, ...]]] | None = None
        self._kept: list[Tensor] = []
        self.play = library.chairlift_play
        for kernel, name in enumerate(_KERNELS):
            setattr(self, name, self._recording(kernel, getattr(library, f"chairlift_{name}")))

    def __getattr__(self, name: str) -> Callable[..., None]:
        raise AttributeError(name)  # set in __init__; this is for type checkers

    def _recording(self, kernel: int, function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            if self._recorded is not None:
                self._recorded.append((kernel, arguments))
            function(*arguments)

        return call

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return self.keep(torch.empty(shape, dtype=dtype))

    def keep(self, tensor: Tensor) -> Tensor:
        """As long as what is being recorded."""
        if self._recorded is not None:
            self._kept.append(tensor)
        return tensor

    def begin(self) -> None:
        self._recorded, self._kept = [], []

    def end(self) -> tuple[NDArray[Any], list[Tensor]]:
        """The calls since `begin`, as tape.c reads them, and their tensors."""
        recorded, kept = self._recorded or [], self._kept
        self._recorded, self._kept = None, []
        calls = np.zeros(len(recorded), _CALL)
        for call, (kernel, arguments) in zip(calls, recorded, strict=True):
            call["kernel"] = kernel
            reals = call["at"].view(np.float64)
            for index, argument in enumerate(arguments):
                (reals if isinstance(argument, float) else call["at"])[index] = argument or 0
        return calls, kept


@dataclass(frozen=True, slots=True)
class Tape:
    """A recorded step of decodes."""

    kv: KvCache
    batch: Batch
    residual: Tensor
    hidden: Tensor
    calls: NDArray[Any]
    kept: list[Tensor]


def taped_decoder(decoder: Decoder, calls: Calls) -> "TapedDecoder | Decoder":
    """With a tape where all that its layers do is such calls."""
    is_called = decoder.token_inputs is None and all(map(_is_called, decoder.layers))
    return TapedDecoder(decoder, calls) if is_called else decoder


def _is_called(layer: Layer) -> bool:
    mixer = layer.mixer
    is_whole = isinstance(mixer, Attention) and mixer.has_plain_values
    return (is_whole or isinstance(mixer, DeltaNet)) and layer.scalar == 1.0


class TapedDecoder:
    """A decoder on native operations whose small steps are replayed."""

    def __init__(self, decoder: Decoder, calls: Calls) -> None:
        self._decoder = decoder
        self._calls = calls
        self._tapes: dict[int, Tape] = {}  # by number of rows
        self.config, self.ops, self.logits = decoder.config, decoder.ops, decoder.logits

    def hidden(self, batch: Batch, kv: KvCache, on_layer: OnLayer = nothing) -> Tensor:
        num_rows, writes = len(batch.tokens), any(view.state_writes for view in batch.views)
        if num_rows > MAX_ROWS or num_rows != batch.num_decodes or batch.logit_rows is not None or writes:
            return self._decoder.hidden(batch, kv, on_layer)
        tape = self._tapes.get(num_rows)
        if tape is None or tape.kv is not kv:
            tape = self._tapes[num_rows] = self._record(batch, kv)
            return tape.hidden
        _copy(batch, tape.batch)
        tape.residual.zero_()
        self._calls.play(tape.calls.ctypes.data, len(tape.calls))
        return tape.hidden

    def _record(self, batch: Batch, kv: KvCache) -> Tape:
        decoder = self._decoder
        own = _room_for(batch, -(-decoder.max_len // kv.block_size) * kv.fit.pages_a_block)
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
    room: dict[str, Any] = {name: torch.empty_like(getattr(batch, name)) for name in _COPIED}
    views = tuple(_room_for(view, width) for view in batch.views)
    if has_state := batch.tables.dim() == 3:
        width = batch.tables.shape[2]
    shape = (len(batch.contexts), 2, width) if has_state else (len(batch.contexts), width)
    tables = torch.zeros(shape, dtype=batch.tables.dtype)
    return replace(batch, **room, tables=tables, views=views)


def _copy(batch: Batch, to: Batch) -> None:
    for name in _COPIED:
        getattr(to, name).copy_(getattr(batch, name))
    to.tables[:, : batch.tables.shape[1]] = batch.tables
    for view, own in zip(batch.views, to.views, strict=True):
        _copy(view, own)
