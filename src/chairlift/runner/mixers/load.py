"""A layer's mixer from its declaration and its tensors, but for the matrices: these are weights as any other.

A mixer has one line in `_LOADERS`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec, Rotation
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.models.mixers.latent import LatentSpec
from chairlift.models.mixers.mixer import MixerSpec
from chairlift.models.parts import MixerTensors, Part
from chairlift.runner.mixers.delta_net import DeltaNet
from chairlift.runner.mixers.latent import Latent
from chairlift.runner.mixers.mixer import Mixer
from chairlift.runner.mixers.tiles import Tiles
from chairlift.runner.ops import Attention, Norm, Weight
from chairlift.runner.rope import query_factors


class Reads(Protocol):
    """Tensors of the model, where and as it computes."""

    @property
    def eps(self) -> float:
        """Of its norms."""

    @property
    def wide(self) -> torch.dtype:
        """Its number type, or float32 where that is narrower."""

    @property
    def device(self) -> torch.device: ...
    @property
    def is_exact(self) -> bool:
        """A product's row has the same bits whatever the others are."""

    def weight(self, matrix: Tensor) -> Weight:
        """Of numbers of any type, never quantised."""

    def tensor(self, part: Part) -> Tensor:
        """Wide."""

    def gain(self, part: Part) -> Tensor:
        """The weights of a norm: wide, with what the stored ones lack."""

    def rotation(self, rotation: Rotation | None, width: int) -> Tensor:
        """Wide [max_len, width]: cosines, then sines."""


def load_mixer(spec: MixerSpec, tensors: MixerTensors, reads: Reads) -> Mixer:
    return _LOADERS[type(spec)](spec, tensors, reads)


def _attention(spec: AttentionSpec, tensors: MixerTensors, reads: Reads) -> Attention:
    table = reads.rotation(spec.rotation, spec.head_dim)
    q_gain, k_gain = (reads.gain(norm) if (norm := tensors.norms.get(role)) else None for role in ("q_norm", "k_norm"))
    factors = query_factors(spec.growth, len(table), reads.wide)
    sinks = tensors.further.get("sinks")
    ones = torch.ones(spec.head_dim, dtype=reads.wide, device=reads.device)
    return Attention(
        spec, table, q_gain, k_gain, reads.eps, None if factors is None else factors.to(reads.device),
        None if sinks is None else reads.tensor(sinks), Norm(ones, reads.eps) if spec.has_value_norm else None,
    )  # fmt: skip


def _delta_net(spec: DeltaNetSpec, tensors: MixerTensors, reads: Reads) -> DeltaNet:
    found = {role: reads.tensor(part) for role, part in tensors.further.items()}
    decay = -found["log_decay"].exp() if "log_decay" in found else found["decay"]
    return DeltaNet(
        spec, found["taps"][:, 0].t().contiguous(), decay, found["bias"],
        Norm(reads.gain(tensors.norms["norm"]), reads.eps), Tiles(spec.fixed, spec.num_outputs, reads.wide),
    )  # fmt: skip


def _latent(spec: LatentSpec, tensors: MixerTensors, reads: Reads) -> Latent:
    norms = {role: Norm(reads.gain(part), spec.eps) for role, part in tensors.norms.items()}
    both = reads.tensor(tensors.further["row_up"])
    heads = [each.split([spec.still_dim, spec.value_dim]) for each in both.chunk(spec.num_heads)]
    return Latent(
        spec,
        reads.rotation(spec.rotation, spec.turned_dim),
        norms.get("query_norm"),
        norms["row_norm"],
        keys=tuple(reads.weight(key.T) for key, _ in heads),
        values=tuple(reads.weight(value) for _, value in heads),
        both=None if reads.is_exact else reads.weight(both),
    )


_LOADERS: dict[type[MixerSpec], Callable[[Any, MixerTensors, Reads], Mixer]] = {
    AttentionSpec: _attention,
    DeltaNetSpec: _delta_net,
    LatentSpec: _latent,
}
