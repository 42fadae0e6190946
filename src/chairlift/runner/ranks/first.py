"""The first rank: joins the others, and makes runners that compute with them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.ports import Runner
from chairlift.models.shards import Rank, check_cuts, is_even
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.ranks.group import Group
from chairlift.runner.ranks.model import RankedCache, RankedModel
from chairlift.runner.ranks.orders import Begin, Orders
from chairlift.runner.ranks.spread import spread
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.start.choices import Choices
from chairlift.runner.torch.runner import TorchRunner

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Crew:
    """The processes of the other ranks."""

    store: Path  # a file to meet in
    ready: Callable[[], Sequence[Connection]]  # waits for them; a pipe to each


@dataclass(frozen=True, slots=True)
class Ranks:
    model: Decoder  # of the first, spread over all
    group: Group
    orders: Orders
    over: str  # gloo or nccl

    @classmethod
    def join(cls, crew: Crew, model: Decoder, settings: Settings, config: ModelConfig, chosen: Choices) -> "Ranks":
        """model: of the first rank alone. config: of the whole model."""
        over = collectives(settings, chosen.device)
        pipes = crew.ready()
        group = Group(crew.store, Rank(0, settings.tensor_parallel), chosen.device, over, settings.exact)
        if over == "gloo" and chosen.kernels == "triton":
            _log.warning("steps are launched kernel by kernel: sums over gloo cannot be captured")
        return cls(spread(model, config, group), group, Orders(pipes), over)

    def make_runner(
        self, chosen: Choices, limits: Limits, exact: bool, matchers: Matchers, num_host_blocks: int, max_graphs: int
    ) -> Runner:
        """Its caches take the place of those before, in every rank."""
        max_graphs = max_graphs if self.over == "nccl" else 0
        self.orders.send(Begin(limits, num_host_blocks, max_graphs))
        kv = KvCache(
            chosen.config, limits.num_blocks, limits.block_size, chosen.kv_dtype, chosen.device, num_host_blocks,
            chosen.kv_groups,
        )  # fmt: skip
        if chosen.kernels == "triton":
            from chairlift.runner.cuda.runner import CudaRunner

            return CudaRunner(
                self.model, kv, chosen.device, limits, chosen.flash, exact, matchers, max_graphs, self.orders
            )
        model = RankedModel(self.model, self.group, self.orders)
        return TorchRunner(model, RankedCache(kv, self.orders), chosen.device, matchers)


def collectives(settings: Settings, device: torch.device) -> str:
    """How ranks on such a device add up."""
    return "nccl" if device.type == "cuda" and settings.collectives == "auto" else "gloo"


def check_ranks(settings: Settings, config: ModelConfig) -> None:
    """Refuses more ranks than the model can be cut for or than there are GPUs, unless they may share one."""
    count, num_gpus = settings.tensor_parallel, torch.cuda.device_count()
    check_cuts(config, count)
    if settings.device != "cpu" and settings.collectives == "auto" and 0 < num_gpus < count:
        raise InvalidConfig(
            f"tensor_parallel {count}: torch sees {num_gpus} GPU{'s' * (num_gpus > 1)}, and each rank needs its own; "
            f"use --tensor-parallel {num_gpus}, or --collectives gloo to share them, slowly"
        )
    if not is_even(config, count):
        _log.warning("%d ranks do not divide the model's heads or inner width: the first have more to compute", count)
