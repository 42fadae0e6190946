"""Ranks as threads of one process, which meet where processes would: for tests of how a model is cut."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chairlift.models.kv_groups import kv_groups
from chairlift.models.shards import Rank, shard
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache, sizes_of
from chairlift.runner.model import Decoder
from chairlift.runner.ops import Batch
from chairlift.runner.ranks.group import Group
from chairlift.runner.ranks.spread import spread
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.shards import ShardTensors
from chairlift.runner.weights.source import CutSource


class _Meeting:
    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=30)
        self.brought: list[Any] = [None] * count


class ThreadGroup(Group):
    """A group whose ranks hand each other tensors."""

    def __init__(self, meeting: _Meeting, rank: Rank) -> None:
        self.rank = rank
        self._meeting = meeting
        self._in_order = True

    def _all(self, x: Tensor) -> tuple[Tensor, ...]:
        self._meeting.brought[self.rank.index] = x.clone()
        self._meeting.barrier.wait()
        found = tuple(part.clone() for part in self._meeting.brought)
        self._meeting.barrier.wait()
        return found


class ThreadedModel:
    """All ranks of a model; runs as one decoder does. Every rank must have the same logits."""

    def __init__(
        self, config: ModelConfig, open_source: Callable[[], CutSource], count: int, dtype: torch.dtype = torch.float64
    ) -> None:
        cpu, meeting = torch.device("cpu"), _Meeting(count)
        self.ranks: list[Decoder] = []
        for rank in (Rank(index, count) for index in range(count)):
            tensors = ShardTensors(open_source(), config, rank)
            own = build_model(shard(config, rank), TorchOps(), tensors, dtype, cpu, config.max_model_len)
            self.ranks.append(spread(own, config, ThreadGroup(meeting, rank)))
        self.config, self.ops = config, self.ranks[0].ops

    @property
    def dtype(self) -> torch.dtype:
        return self.ranks[0].dtype

    def caches(self, num_blocks: int, block_size: int, can_group: bool = False) -> "ThreadedCache":
        sizes = sizes_of(block_size, self.dtype, self.dtype)
        groups = [kv_groups(rank.config, can_group, sizes) for rank in self.ranks]
        assert all(own.declared == groups[0].declared for own in groups), "ranks have the same tables"
        return ThreadedCache(
            [
                KvCache(rank.config, num_blocks, block_size, rank.dtype, _CPU, groups=own)
                for rank, own in zip(self.ranks, groups, strict=True)
            ]
        )

    def hidden(self, batch: Batch, kv: "ThreadedCache", on_layer: object = None) -> Tensor:
        return _same(self._together(lambda rank: self.ranks[rank].hidden(batch, kv.parts[rank])))

    def logits(self, hidden: Tensor) -> Tensor:
        return _same(self._together(lambda rank: self.ranks[rank].logits(hidden.clone())))

    def _together(self, work: Callable[[int], Tensor]) -> list[Tensor]:
        results: list[Any] = [None] * len(self.ranks)

        def run(rank: int) -> None:
            with torch.inference_mode():
                results[rank] = work(rank)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(self.ranks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class ThreadedCache:
    def __init__(self, parts: list[KvCache]) -> None:
        self.parts, first = parts, parts[0]
        self.block_size, self.tokens = first.block_size, first.tokens
        self.kinds, self.num_groups, self.fit = first.kinds, first.num_groups, first.fit
        self.state = [state for part in parts for state in part.state]


_CPU = torch.device("cpu")


def _same(results: list[Tensor]) -> Tensor:
    assert all(torch.equal(each, results[0]) for each in results)
    return results[0]
