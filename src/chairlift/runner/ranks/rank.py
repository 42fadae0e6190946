"""A rank other than the first: holds its part of the model and of the cache, and carries orders out.

Always: it ends when the first rank closes its pipe. What fails ends it, and with it the engine. Chooses no tokens on a
CPU; on a GPU it chooses those that the first does, so that the next step finds them on its own device.
"""

import logging
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from chairlift.config.settings import Settings
from chairlift.models.shards import Rank
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.ranks.first import collectives
from chairlift.runner.ranks.group import Group
from chairlift.runner.ranks.orders import Begin, Compute, Head, Move, Order, batch_of, received
from chairlift.runner.ranks.spread import spread
from chairlift.runner.start.choices import Choices, choose, load_model
from chairlift.runner.torch.runner import first_line

_MOMENT_S = 0.5  # until the end of the first rank is known
_log = logging.getLogger(__name__)


class Part(Protocol):
    """What a rank does with the orders of one runner."""

    def carry_out(self, order: Order) -> None: ...


def rank_main(
    report: Callable[[Any], None], index: int, pipe: Connection, store: Path, settings: Settings, source: Source,
    config: ModelConfig,
) -> None:  # fmt: skip
    logging.disable(logging.WARNING)  # the first rank has warned of the same
    rank = Rank(index, settings.tensor_parallel)
    chosen = choose(settings, config, rank)
    model = load_model(settings, source, config, rank, chosen)
    report(None)
    group = Group(store, rank, chosen.device, collectives(settings, chosen.device), settings.exact)
    model = spread(model, config, group)
    try:
        _carry_out_all(pipe, model, group, chosen, settings.exact)
    except (RuntimeError, MemoryError) as error:
        time.sleep(_MOMENT_S)  # if it was the first rank's end, this process is ended meanwhile
        _log.error("rank %d ends: %s", index, first_line(error))
        sys.exit(1)


@torch.inference_mode()
def _carry_out_all(pipe: Connection, model: Decoder, group: Group, chosen: Choices, exact: bool) -> None:
    part: Part | None = None
    for order in received(pipe):
        if isinstance(order, Begin):
            part = None  # its memory goes to the next
            part = _begin(order, model, group, chosen, exact)
        else:
            assert part is not None, "the first order is to begin"
            part.carry_out(order)


def _begin(order: Begin, model: Decoder, group: Group, chosen: Choices, exact: bool) -> Part:
    limits = order.limits
    kv = KvCache(
        chosen.config, limits.num_blocks, limits.block_size, chosen.kv_dtype, chosen.device, order.num_host_blocks,
        chosen.kv_groups,
    )  # fmt: skip
    if chosen.kernels != "triton":
        return TorchPart(model, kv, group, chosen.device)
    from chairlift.runner.cuda.step.device import DevicePart
    from chairlift.runner.ranks.cuda import CudaPart

    return CudaPart(DevicePart(model, kv, chosen.device, limits, chosen.flash, exact, order.max_graphs))


class TorchPart:
    def __init__(self, model: Decoder, kv: KvCache, group: Group, device: torch.device) -> None:
        self._model = model
        self._kv = kv
        self._group = group
        self._device = device

    def carry_out(self, order: Order) -> None:
        if isinstance(order, Move):
            self._kv.move_blocks(
                *(np.array(moves, np.int32) for moves in (order.swap_outs, order.swap_ins, order.copies))
            )
        elif isinstance(order, Compute):
            self._model.hidden(batch_of(order, self._device), self._kv)
        else:
            assert isinstance(order, Head)
            shape = order.num_rows, self._model.config.hidden_size
            self._model.logits(self._group.from_first(torch.empty(shape, dtype=self._model.dtype, device=self._device)))
