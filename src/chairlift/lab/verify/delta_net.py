"""Gated delta nets of the reference: one token after the other, from the definition.

No tiles and no pages: a state for each head, changed by every token.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from chairlift.lab.verify.feed_forward import Linear, linear
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.models.parts import MixerTensors, Part


def delta_net_of(
    spec: DeltaNetSpec, tensors: MixerTensors, norm: Linear, read: Callable[[Part], Tensor]
) -> Linear:  # fmt: skip
    """[T, E] -> [T, E]. norm: of each head."""
    inputs, rates = (linear(tensors.matrices[role], read) for role in ("inputs", "rates"))
    output, taps = linear(tensors.output, read), read(tensors.further["taps"])[:, 0]  # [channels, taps]
    further = tensors.further
    rate = read(further["log_decay"]).exp() if "log_decay" in further else -read(further["decay"])
    bias = read(further["bias"])

    def through(x: Tensor) -> Tensor:
        channels, gates = torch.split(inputs(x), [spec.num_channels, spec.num_outputs], dim=1)
        strengths, decays = rates(x).chunk(2, dim=1)
        betas = 1 / (1 + torch.exp(-strengths))
        fading = torch.exp(-rate * torch.log1p(torch.exp(decays + bias)))  # [T, H]
        padded = torch.cat((channels.new_zeros(spec.num_taps - 1, spec.num_channels), channels))
        mixed = torch.stack([(padded[t : t + spec.num_taps].T * taps).sum(1) for t in range(len(x))])
        mixed = mixed / (1 + torch.exp(-mixed))
        width = spec.num_key_heads * spec.key_dim
        q, k, v = torch.split(mixed, [width, width, spec.num_outputs], dim=1)
        outs = []
        for head in range(spec.num_heads):
            sharing = spec.num_heads // spec.num_key_heads
            shared = head % spec.num_key_heads if spec.is_tiled else head // sharing
            own = slice(shared * spec.key_dim, (shared + 1) * spec.key_dim)
            values = v[:, head * spec.value_dim : (head + 1) * spec.value_dim]
            outs.append(norm(_head(_unit(q[:, own]), _unit(k[:, own]), values, betas[:, head], fading[:, head])))
        given = torch.cat(outs, dim=1)
        return output(given * gates / (1 + torch.exp(-gates)))

    return through


def _head(q: Tensor, k: Tensor, v: Tensor, betas: Tensor, fading: Tensor) -> Tensor:
    """[T, V]"""
    state, outs = k.new_zeros(k.shape[1], v.shape[1]), []
    for query, key, value, beta, fade in zip(q, k, v, betas, fading, strict=True):
        state = fade * state
        state = state + torch.outer(key, beta * (value - key @ state))
        outs.append(query @ state / q.shape[1] ** 0.5)
    return torch.stack(outs)


def _unit(x: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).sum(dim=1, keepdim=True) + 1e-6)
