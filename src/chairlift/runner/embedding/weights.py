"""Builds an encoder and its head from a folder's tensors.

Always: every tensor of the files is used or known to be redundant; anything else is refused by name. Names of files
without a head, and of older ones, are those of newer ones with a head, as far as this module knows.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.embedding.declared import EncoderConfig, EncoderLayerSpec, HeadSpec
from chairlift.models.mixers.attention import Rotation
from chairlift.models.spec import ModelConfig
from chairlift.runner.embedding.encoder import Encoder, EncoderLayer, ScoreHead
from chairlift.runner.embedding.ops import EncoderAttention, EncoderOps
from chairlift.runner.ops import Norm, Weight
from chairlift.runner.rope import rotation_table
from chairlift.runner.weights.source import TensorSource

_OLDER = {".gamma": ".weight", ".beta": ".bias"}  # of norms


class NamedAlike:
    """A source whose names all have the prefix of files with a head, and endings of today."""

    def __init__(self, source: TensorSource, prefix: str, own: Collection[str]) -> None:
        """own: beginnings of names that have no prefix, those of heads."""
        self._source = source
        has_prefix = any(name.startswith(prefix) for name in source.names)
        self._stored = {self._alike(name, prefix, own, has_prefix): name for name in source.names}

    def _alike(self, name: str, prefix: str, own: Collection[str], has_prefix: bool) -> str:
        for older, newer in _OLDER.items():
            name = name.removesuffix(older) + newer if name.endswith(older) else name
        return name if has_prefix or name.startswith(tuple(own)) else prefix + name

    @property
    def names(self) -> Collection[str]:
        return self._stored.keys()

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._source.read(self._stored.get(name, name), shape)

    def file_of(self, name: str) -> str:
        return self._source.file_of(self._stored.get(name, name))


@dataclass(frozen=True, slots=True)
class EncoderAssembly:
    model: ModelConfig
    config: EncoderConfig
    ops: EncoderOps
    source: TensorSource
    dtype: torch.dtype
    device: torch.device
    max_len: int
    _read: set[str] = field(default_factory=set)

    def build(self) -> tuple[Encoder, ScoreHead | None]:
        names, config = self.config.names, self.config
        hidden = self.model.hidden_size
        rotation = cache(
            lambda turn, dim: rotation_table(turn, dim, self.max_len, self._wide).to(self.device)
        )  # one for layers that turn alike
        positions = types = None
        if config.num_positions:
            table = self._tensor(names.prefix + names.positions + ".weight", (config.num_positions, hidden))
            positions = table[config.first_position :]
        if config.num_types:
            types = self._tensor(names.prefix + names.types + ".weight", (config.num_types, hidden))
        encoder = Encoder(
            config=config,
            ops=self.ops,
            embedding=self._tensor(names.prefix + names.embedding + ".weight", (self.model.vocab_size, hidden)),
            positions=positions,
            types=types,
            embedding_norm=self._norm(names.prefix + names.embedding_norm),
            layers=tuple(self._layer(index, spec, rotation) for index, spec in enumerate(config.layers)),
            final_norm=self._norm(names.prefix + names.final_norm) if names.final_norm else None,
        )
        head = None if config.head is None else self._head(config.head)
        self._refuse_unknown()
        return encoder, head

    def _layer(
        self, index: int, spec: EncoderLayerSpec, rotation: Callable[[Rotation | None, int], Tensor]
    ) -> EncoderLayer:
        names, config, hidden = self.config.names, self.config, self.model.hidden_size
        prefix, heads = names.prefix + names.layer.format(index), spec.attention
        num_up = spec.width * (2 if spec.is_gated else 1)
        return EncoderLayer(
            spec=spec,
            attention=EncoderAttention(heads, spec.reach, rotation(heads.rotation, heads.head_dim)),
            qkv=self._matrix(prefix, names.qkv, 3 * hidden, hidden, config.has_attention_bias),
            output=self._matrix(prefix, (names.output,), hidden, hidden, config.has_attention_bias),
            up=self._matrix(prefix, (names.up,), num_up, hidden, config.has_feed_forward_bias),
            down=self._matrix(prefix, (names.down,), hidden, spec.width, config.has_feed_forward_bias),
            attention_norm=self._norm(prefix + names.attention_norm) if spec.has_attention_norm else None,
            feed_forward_norm=self._norm(prefix + names.feed_forward_norm),
        )

    def _head(self, spec: HeadSpec) -> ScoreHead:
        hidden = self.model.hidden_size
        return ScoreHead(
            spec,
            self.ops,
            self._matrix("", (spec.dense,), hidden, hidden, spec.has_dense_bias),
            self._norm(spec.norm) if spec.norm else None,
            self._matrix("", (spec.out,), spec.num_labels, hidden, True),
        )

    def _matrix(self, prefix: str, names: tuple[str, ...], rows: int, columns: int, has_bias: bool) -> Weight:
        each = rows // len(names)
        matrix = torch.cat([self._tensor(f"{prefix}{name}.weight", (each, columns)) for name in names])
        bias = torch.cat([self._tensor(f"{prefix}{name}.bias", (each,)) for name in names]) if has_bias else None
        return self.ops.weight(matrix, bias)

    def _norm(self, name: str) -> Norm:
        size, has_bias = (self.model.hidden_size,), self.config.has_norm_bias
        bias = self._tensor(f"{name}.bias", size).to(self._wide) if has_bias else None
        gain = self._tensor(f"{name}.weight", size).to(self._wide)
        return Norm(gain, self.config.norm_eps, bias, is_centred=True)

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self._read.add(name)
        return self.source.read(name, shape).to(self.device, self.dtype)

    @property
    def _wide(self) -> torch.dtype:
        return torch.promote_types(self.dtype, torch.float32)

    def _refuse_unknown(self) -> None:
        names = self.config.names
        redundant = (*names.redundant, *(names.prefix + each for each in names.redundant))
        for name in sorted(self.source.names):
            if name not in self._read and not name.startswith(redundant):
                file, model = self.source.file_of(name), self.model.architecture
                raise InvalidConfig(f"{file}: tensor {name} has no place in {model}")
