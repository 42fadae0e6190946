"""One rank's part of the weights: a source of tensors that reads only what the rank holds.

Always: tensors that the rank has whole are read as without ranks. Knows no kind of file.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from chairlift.models.shards import Cut, Rank, added_once, cuts
from chairlift.models.spec import ModelConfig
from chairlift.runner.weights.source import CutSource, Stored, StoredSource


class ShardTensors:
    """Answers for the tensors that `shard(config, rank)` declares."""

    def __init__(self, source: CutSource, config: ModelConfig, rank: Rank) -> None:
        self._source = source
        self._cuts = cuts(config, rank)
        self._zeros = frozenset(added_once(config) if rank.index else ())

    @property
    def names(self) -> Collection[str]:
        return self._source.names

    def file_of(self, name: str) -> str:
        return self._source.file_of(name)

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name in self._zeros:
            return torch.zeros(shape)
        cut = self._cuts.get((name, shape))
        return self._source.read(name, shape) if cut is None else self._source.read(cut.name, cut.shape, cut)

    def stored(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Stored | None:
        if not isinstance(self._source, StoredSource):
            return None
        cut = self._cuts.get((name, shape))
        return self._source.stored(name, shape) if cut is None else self._source.stored(cut.name, cut.shape, cut)
