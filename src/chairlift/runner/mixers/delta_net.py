"""Gated delta net in torch's operations, a tile at a time.

Letters in shapes: C tokens of a tile, H value heads, K and V numbers of a key and of a value.

What a tile keeps of a token is what its matrices gave: channels of the convolution, strengths, decays. With S the state
before the tile and G the sum of the logarithms of decays up to a token, its rows are

    u_t = beta_t (v_t - e^G_t k_t S) - sum over j < t of beta_t (k_t k_j) e^(G_t - G_j) u_j
    o_t = e^G_t q_t S + sum over j <= t of (q_t k_j) e^(G_t - G_j) u_j

Always: float32 at least from the convolution on; shapes are those of a whole tile, so sums have one order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.runner.mixers.mixer import State
from chairlift.runner.mixers.tiles import Memory, Tiles
from chairlift.runner.ops import Batch, Norm, Ops, Weight
from chairlift.runner.row_exact import sigmoid

EPS = 1e-6  # of the lengths of queries and keys


@runtime_checkable
class DeltaNetOps(Protocol):
    """Operations with kernels of their own for what comes after the products."""

    def delta_net(self, inputs: Tensor, rates: Tensor, mixer: "DeltaNet", state: State, batch: Batch) -> Tensor:
        """inputs [T, channels + gates], rates [T, strengths and decays] -> [T, outputs]"""


@dataclass(frozen=True, slots=True)
class DeltaNet:
    spec: DeltaNetSpec
    taps: Tensor  # wide [taps, channels], the oldest first
    decay: Tensor  # wide [H]: minus what the softplus is multiplied by
    bias: Tensor  # wide [H]
    norm: Norm  # of each head
    tiles: Tiles

    def mix(self, ops: Ops, x: Tensor, weights: Mapping[str, Weight], state: State, batch: Batch) -> Tensor:
        spec = self.spec
        inputs, rates = weights["inputs"].linear(x), weights["rates"].linear(x)
        if isinstance(ops, DeltaNetOps):
            return ops.delta_net(inputs, rates, self, state, batch)
        channels, gates = inputs.split((spec.num_channels, spec.num_outputs), dim=1)
        rows = torch.cat((channels, rates), dim=1)
        out = self.tiles.through(rows, state, batch, self._tile).to(x.dtype)
        heads = ops.norm(out.view(-1, spec.value_dim), self.norm).view(len(x), -1).to(self.tiles.wide)
        gates = gates.to(self.tiles.wide)
        return (heads * (gates * sigmoid(gates))).to(x.dtype)

    def _tile(self, rows: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        spec, size = self.spec, len(rows)
        channels, strengths, decays = rows.split((spec.num_channels, spec.num_heads, spec.num_heads), dim=1)
        before = torch.cat((memory.narrow.view(-1, spec.num_channels), channels))
        q, k, v = self._heads(self._convolved(before, size))  # [H, C, K or V]
        beta = sigmoid(strengths).to(q.dtype).t().unsqueeze(2)  # [H, C, 1]
        logs = self.decay * F.softplus(decays.to(q.dtype) + self.bias)  # [C, H]
        total = logs.t().cumsum(1).unsqueeze(2)  # G [H, C, 1]
        state = memory.wide.view(spec.num_heads, spec.key_dim, spec.value_dim)

        is_before = torch.ones(size, size, dtype=torch.bool, device=q.device).tril()
        fading = (total - total.transpose(1, 2)).masked_fill(~is_before, -torch.inf).exp()  # [H, C, C]
        keys = k.transpose(1, 2)
        between = (beta * (k @ keys) * fading).tril(-1)
        wanted = beta * (v - total.exp() * (k @ state))
        u = torch.linalg.solve_triangular(between, wanted, upper=False, unitriangular=True)  # [H, C, V]
        out = total.exp() * (q @ state) + ((q @ keys) * fading) @ u
        left = (total[:, -1:] - total).exp()
        after = total[:, -1:].exp() * state + (k * left).transpose(1, 2) @ u
        return out.transpose(0, 1).flatten(1), Memory(after.flatten(), before[size:].flatten())

    def _convolved(self, before: Tensor, size: int) -> Tensor:
        """The channels of the tile and of the tokens before it -> [C, channels], wide"""
        wide = before.to(self.taps.dtype)
        total = self.taps[0] * wide[:size]
        for tap in range(1, len(self.taps)):
            total = total + self.taps[tap] * wide[tap : tap + size]
        total = total.to(before.dtype).to(wide.dtype)
        return (total * sigmoid(total)).to(before.dtype).to(wide.dtype)

    def _heads(self, channels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every value head."""
        spec, width = self.spec, self.spec.num_key_heads * self.spec.key_dim
        q, k, v = channels.split((width, width, spec.num_outputs), dim=1)
        q, k = (self._shared(_unit(each.unflatten(1, (-1, spec.key_dim)))) for each in (q, k))
        v = v.unflatten(1, (-1, spec.value_dim)).transpose(0, 1)
        return (q * spec.key_dim**-0.5).contiguous(), k.contiguous(), v.contiguous()

    def _shared(self, heads: Tensor) -> Tensor:
        """[C, key heads, K] -> [H, C, K]"""
        spec, own = self.spec, heads.transpose(0, 1)
        count = spec.num_heads // spec.num_key_heads
        return own.repeat(count, 1, 1) if spec.is_tiled else own.repeat_interleave(count, 0)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + EPS)
