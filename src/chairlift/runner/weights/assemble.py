"""Puts a model together from a source of tensors, one tensor at a time so that weights are never held twice.

Always: every tensor of the source is used or known to be redundant; anything else is refused by name.
"""

import re
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor

from chairlift.config.model import ModelConfig
from chairlift.core.errors import InvalidConfig
from chairlift.runner.model import Decoder, Layer
from chairlift.runner.ops import MakeWeight, Ops, Weight
from chairlift.runner.rope import rotation_table
from chairlift.runner.weights.blocks import KeepsBlocks, kept_blocks
from chairlift.runner.weights.source import TensorSource
from chairlift.runner.weights.transfer import Transfer, transfer_to

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
# Rotary tables that some files carry and everyone computes from the configuration.
_COMPUTED = re.compile(r"(\.rotary_emb\.(inv_freq|cos_cached|sin_cached)|^rope_freqs\.weight)$")


@dataclass(frozen=True, slots=True)
class Keeping:
    """How matrices are kept; None: as the operations keep any."""

    layers: MakeWeight | None = None
    ends: MakeWeight | None = None  # the embedding and the head
    as_stored: bool = False  # blocks of a file stay as they are; the two above are for what is not in blocks


PLAIN = Keeping()


def build_model(
    config: ModelConfig, ops: Ops, source: TensorSource, dtype: torch.dtype, device: torch.device, max_len: int,
    keeping: Keeping = PLAIN,
) -> Decoder:  # fmt: skip
    with closing(transfer_to(device, torch.get_num_threads())) as transfer:
        return Assembly(config, ops, source, dtype, device, keeping, transfer).build(max_len)


class Assembly:
    def __init__(
        self, config: ModelConfig, ops: Ops, source: TensorSource, dtype: torch.dtype, device: torch.device,
        keeping: Keeping, transfer: Transfer,
    ) -> None:  # fmt: skip
        self._config = config
        self._ops = ops
        self._keeping = keeping
        self._source = source
        self._dtype = dtype
        self._device = device
        self._transfer = transfer

    def build(self, max_len: int) -> Decoder:
        config = self._config
        self._refuse_unknown(self._source.names)
        embedding = self._end(EMBEDDING)
        layers = tuple(self._layer(index) for index in range(config.num_layers))
        norm = self._read("model.norm.weight", (config.hidden_size,))
        head = embedding if config.is_tied else self._end(HEAD)
        return Decoder(config, self._ops, embedding, layers, norm, head, self._rotation(max_len))

    def _layer(self, index: int) -> Layer:
        config = self._config
        hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        q_rows, kv_rows = config.num_heads * head_dim, config.num_kv_heads * head_dim
        attention, mlp = f"model.layers.{index}.self_attn", f"model.layers.{index}.mlp"
        projections = {
            f"{attention}.{name}_proj": rows for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows))
        }
        weights = {f"{name}.weight": rows for name, rows in projections.items()}
        biases = {f"{name}.bias": rows for name, rows in projections.items()} if config.has_qkv_bias else None
        norms = config.has_qk_norm
        return Layer(
            attention_norm=self._read(f"model.layers.{index}.input_layernorm.weight", (hidden,)),
            qkv=self._weight(weights, hidden, biases),
            q_norm=self._read(f"{attention}.q_norm.weight", (head_dim,)) if norms else None,
            k_norm=self._read(f"{attention}.k_norm.weight", (head_dim,)) if norms else None,
            output=self._weight({f"{attention}.o_proj.weight": hidden}, q_rows),
            mlp_norm=self._read(f"model.layers.{index}.post_attention_layernorm.weight", (hidden,)),
            gate_up=self._weight({f"{mlp}.gate_proj.weight": inner, f"{mlp}.up_proj.weight": inner}, hidden),
            down=self._weight({f"{mlp}.down_proj.weight": hidden}, inner),
        )

    def _weight(self, parts: dict[str, int], columns: int, biases: dict[str, int] | None = None) -> Weight:
        """One matrix of a layer, of the named parts (name -> rows) stacked."""
        bias = self._stack({name: (rows,) for name, rows in biases.items()}) if biases else None
        return self._matrix({name: (rows, columns) for name, rows in parts.items()}, bias, self._keeping.layers)

    def _end(self, name: str) -> Weight:
        """The embedding or the head."""
        return self._matrix({name: (self._config.vocab_size, self._config.hidden_size)}, None, self._keeping.ends)

    def _matrix(self, parts: dict[str, tuple[int, int]], bias: Tensor | None, make: MakeWeight | None) -> Weight:
        blocks = kept_blocks(self._source, self._ops, parts) if self._keeping.as_stored else None
        if blocks is None:
            return (make or self._ops.weight)(self._stack(parts), bias)
        assert isinstance(self._ops, KeepsBlocks)
        return self._ops.blocks_weight(blocks, bias, self._dtype)

    def _stack(self, parts: Mapping[str, tuple[int, ...]]) -> Tensor:
        rows = sum(shape[0] for shape in parts.values())
        columns = next(iter(parts.values()))[1:]
        stacked = torch.empty((rows, *columns), dtype=self._dtype, device=self._device)
        low = 0
        for name, shape in parts.items():
            self._transfer.copy(self._source.read(name, shape), stacked[low : low + shape[0]])
            low += shape[0]
        return stacked

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._stack({name: shape})

    def _rotation(self, max_len: int) -> Tensor:
        dtype = torch.float64 if self._dtype is torch.float64 else torch.float32
        return rotation_table(self._config, max_len, dtype).to(self._device)

    def _refuse_unknown(self, names: Collection[str]) -> None:
        expected = expected_names(self._config)
        for name in sorted(names):
            if name not in expected and name != HEAD and not _COMPUTED.search(name):
                file = self._source.file_of(name)
                raise InvalidConfig(f"{file}: tensor {name} has no place in {self._config.architecture}")


def expected_names(config: ModelConfig) -> set[str]:
    names = {EMBEDDING, "model.norm.weight"} | (set() if config.is_tied else {HEAD})
    parts = ["input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.o_proj.weight"]
    parts += [f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")]
    parts += [f"self_attn.{p}_proj.weight" for p in "qkv"]
    parts += [f"self_attn.{p}_proj.bias" for p in "qkv"] if config.has_qkv_bias else []
    parts += [f"self_attn.{p}_norm.weight" for p in "qk"] if config.has_qk_norm else []
    return names | {f"model.layers.{i}.{part}" for i in range(config.num_layers) for part in parts}
