"""Builds a model from a source of tensors, one at a time, so that weights are never held twice.

Always: every tensor of the source is used or known to be redundant; anything else is refused by name.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.models.parts import Matrix, Part
from chairlift.models.spec import FeedForwardSpec, LayerSpec, ModelConfig
from chairlift.models.tensors import (
    ExpertTensors,
    LayerTensors,
    TokenTensors,
    end_tensors,
    expected_parts,
    layer_tensors,
    unread_names,
)
from chairlift.runner.mixers.load import load_mixer
from chairlift.runner.model import Decoder, Layer, TokenBranch, TokenInputs
from chairlift.runner.ops import ExpertNorms, Experts, MakeWeight, Norm, Ops, Weight
from chairlift.runner.rope import rotation_table
from chairlift.runner.weights.experts import ExpertReader
from chairlift.runner.weights.source import Stored, TensorSource, arranged, kept
from chairlift.runner.weights.transfer import Transfer, transfer_to

# Rotary tables of some files, which the model computes from its configuration.
_COMPUTED = re.compile(
    r"(\.rotary_emb\.(inv_freq|cos_cached|sin_cached)|^rope_(freqs|factors_short|factors_long)\.weight)$"
)


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How matrices are kept; None: as `Ops.weight` does."""

    layers: MakeWeight | None = None
    ends: MakeWeight | None = None  # the embedding and the head
    as_stored: bool = False  # kinds that the operations keep stay as they are; `layers` and `ends` are for all else


PLAIN = WeightFormat()


def build_model(
    config: ModelConfig, ops: Ops, source: TensorSource, dtype: torch.dtype, device: torch.device, max_len: int,
    weight_format: WeightFormat = PLAIN,
) -> Decoder:  # fmt: skip
    with closing(transfer_to(device, torch.get_num_threads())) as transfer:
        return Assembly(config, ops, source, dtype, device, weight_format, transfer).build(max_len)


@dataclass(frozen=True, slots=True)
class Assembly:
    config: ModelConfig
    ops: Ops
    source: TensorSource
    dtype: torch.dtype
    device: torch.device
    weight_format: WeightFormat
    transfer: Transfer

    def build(self, max_len: int) -> Decoder:
        config = self.config
        refuse_unknown(config, self.source)
        tensors = end_tensors(config)
        embedding = self._matrix(tensors.embedding, self.weight_format.ends)
        reads = _Reads(self, max_len)
        layers = tuple(self._layer(spec, layer_tensors(config, i), reads) for i, spec in enumerate(config.layers))
        norm = self._scaled(self._norm(tensors.norm, tensors.norm_bias), config.logit_factor)
        head = embedding if tensors.head is None else self._matrix(tensors.head, self.weight_format.ends)
        factor = torch.tensor(config.embedding_factor, dtype=torch.float64).to(self.dtype).item()
        token_inputs = self._token_inputs(tensors.token) if tensors.token else None
        return Decoder(config, self.ops, embedding, layers, norm, head, factor, self.dtype, max_len, token_inputs)

    def _token_inputs(self, tensors: TokenTensors) -> TokenInputs:
        ends = self.weight_format.ends
        table, projection = self._matrix(tensors.table, ends), self._matrix(tensors.projection, ends)
        return TokenInputs(table, projection, self._norm(tensors.norm, None), self.config.token_width)

    def _layer(self, spec: LayerSpec, tensors: LayerTensors, reads: "_Reads") -> Layer:
        norms = {
            role: self._norm(part, tensors.norm_biases.get(role)) for role, part in tensors.norms.items()
        }  # fmt: skip
        make = self.weight_format.layers
        return Layer(
            spec=spec,
            mixer=load_mixer(spec.mixer, tensors.mixer, reads),
            weights={role: self._matrix(matrix, make) for role, matrix in tensors.mixer.matrices.items()},
            output=self._matrix(tensors.mixer.output, make),
            gate_up=self._matrix(tensors.gate_up, make) if tensors.gate_up else None,
            down=self._matrix(tensors.down, make) if tensors.down else None,
            experts=self._experts(spec.feed_forward, tensors.experts) if tensors.experts else None,
            before_attention=norms.get("before_attention"),
            after_attention=norms.get("after_attention"),
            before_feed_forward=norms.get("before_feed_forward"),
            after_feed_forward=norms.get("after_feed_forward"),
            token=self._token_branch(tensors, norms["after_token"], make) if tensors.token_gate else None,
            scalar=float(self.source.read(tensors.scalar.name, (1,))) if tensors.scalar else None,
        )

    def _token_branch(self, tensors: LayerTensors, norm: Norm, make: MakeWeight | None) -> TokenBranch:
        assert tensors.token_gate is not None and tensors.token_output is not None
        return TokenBranch(self._matrix(tensors.token_gate, make), self._matrix(tensors.token_output, make), norm)

    def _experts(self, spec: FeedForwardSpec, tensors: ExpertTensors) -> Experts:
        assert spec.experts is not None
        correction, made = tensors.correction, self.weight_format
        reader = ExpertReader(
            self.ops, self.source, self.dtype, self.device, made.layers, made.as_stored, self.transfer
        )  # fmt: skip
        return Experts(
            spec=spec,
            # Never quantised: it is small, and the choice should not depend on rounding.
            router=self._matrix(tensors.router, None),
            correction=None if correction is None else self.stack((correction,), self.wide),
            gate_up=reader.weight(tensors.gate_up, spec.experts.count),
            down=reader.weight(tensors.down, spec.experts.count),
            factors=None if tensors.factors is None else self.stack((tensors.factors,), self.wide),
            norms=self._expert_norms(tensors.norms) if tensors.norms else None,
            shared_gate=None if tensors.shared_gate is None else self._matrix(tensors.shared_gate, None),
        )

    def _expert_norms(self, parts: dict[str, Part]) -> ExpertNorms:
        norms = {role: self._norm(part, None) for role, part in parts.items()}
        router = self._scaled(norms["router"], self.config.hidden_size**-0.5)
        return ExpertNorms(router, norms["before_experts"], norms["after_experts"], norms["after_shared"])

    def _matrix(self, matrix: Matrix, make: MakeWeight | None) -> Weight:
        bias = self.stack(matrix.bias) if matrix.bias else None
        make = None if matrix.is_exact else make
        keeps = self.ops.keeps if self.weight_format.as_stored else {}
        if (parts := kept(self.source, matrix.parts, keeps)) is None:
            return (make or self.ops.weight)(self.stack(matrix.parts), bias)
        return keeps[parts[0].kind]([self._on_device(part) for part in parts], bias, self.dtype)

    def _on_device(self, stored: Stored) -> Stored:
        if self.device.type == "cpu":
            return stored
        order = None if stored.order is None else stored.order.to(self.device)
        return replace(stored, tensors=tuple(map(self._sent, stored.tensors)), order=order)

    def _sent(self, tensor: Tensor) -> Tensor:
        sent = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        self.transfer.copy(tensor, sent)
        return sent

    def stack(self, parts: Sequence[Part], dtype: torch.dtype | None = None) -> Tensor:
        heights = [part.shape[0] for part in parts]
        stacked = torch.empty((sum(heights), *parts[0].shape[1:]), dtype=dtype or self.dtype, device=self.device)
        for part, rows in zip(parts, stacked.split(heights), strict=True):
            self.transfer.copy(arranged(self.source.read(part.name, part.shape), part), rows)
        return stacked

    def gain(self, part: Part) -> Tensor:
        """The weights of a norm, in float32 at least: 1 plus a weight loses too much in 16 bits."""
        gain = self.stack((part,), self.wide)
        return gain.add_(part.offset) if part.offset else gain

    def _norm(self, gain: Part, bias: Part | None) -> Norm:
        added = None if bias is None else self.stack((bias,), self.wide)
        return Norm(self.gain(gain), self.config.rms_norm_eps, added, self.config.has_centred_norms)

    @staticmethod
    def _scaled(norm: Norm, factor: float) -> Norm:
        return replace(norm, gain=norm.gain * factor, bias=None if norm.bias is None else norm.bias * factor)

    @property
    def wide(self) -> torch.dtype:
        return torch.promote_types(self.dtype, torch.float32)


class _Reads:
    """For the mixers of layers."""

    def __init__(self, assembly: Assembly, max_len: int) -> None:
        self.eps, self.wide, self.device = assembly.config.rms_norm_eps, assembly.wide, assembly.device
        self.gain = assembly.gain
        self._stack = assembly.stack
        self.is_exact = assembly.ops.is_exact
        self.weight = lambda matrix: assembly.ops.weight(matrix.to(assembly.dtype))
        # Layers share tables.
        self.rotation = cache(lambda turn, width: rotation_table(turn, width, max_len, self.wide).to(self.device))

    def tensor(self, part: Part) -> Tensor:
        return self._stack((part,), self.wide)


def refuse_unknown(config: ModelConfig, source: TensorSource) -> None:
    expected = {part.name for part in expected_parts(config)}
    head = f"{config.names.head}.weight"  # some files of tied models have it too
    further = tuple(config.names.layer.format(config.num_layers + i) for i in range(config.num_further_layers))
    unread = further + config.further + config.towers + unread_names(config)
    for name in sorted(source.names):
        if name not in expected and name != head and not _COMPUTED.search(name) and not name.startswith(unread):
            raise InvalidConfig(f"{source.file_of(name)}: tensor {name} has no place in {config.architecture}")
