"""The operations of an encoder, as a protocol, and in plain torch: the reference, and what runs anywhere.

Always: norms and softmax are computed in float32 at least.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.embedding.inputs import Group, Rows
from chairlift.runner.ops import Norm, Weight
from chairlift.runner.torch.ops import TorchWeight, normed, rotate
from chairlift.runner.torch.sdpa import weighted, without_cudnn


@dataclass(frozen=True, slots=True)
class EncoderAttention:
    """A layer's attention beside its matrices."""

    spec: AttentionSpec
    reach: int  # positions seen to each side; 0: all
    rotation: Tensor  # float32 at least [max_len, head_dim]; as `runner.ops.Attention` has it


class EncoderOps(Protocol):
    @property
    def is_exact(self) -> bool:
        """Whether a row's bits depend on its own input alone."""

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight: ...

    def add_norm(self, x: Tensor, residual: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
        """(norm(x + residual), x + residual); may overwrite both."""

    def activate(self, x: Tensor, activation: str, is_gated: bool) -> Tensor:
        """x [T, F], or gated [T, 2F] -> [T, F]: activation(first half) * second half."""

    def attend(self, qkv: Tensor, attention: EncoderAttention, rows: Rows) -> Tensor:
        """qkv [T, 3 * heads * head_dim], of queries, keys and values -> [T, heads * head_dim]: each position of an
        input sees all of its input, or those in reach."""


class TorchEncoderOps:
    @property
    def is_exact(self) -> bool:
        return False

    def weight(self, matrix: Tensor, bias: Tensor | None = None) -> Weight:
        return TorchWeight(matrix, bias)

    def add_norm(self, x: Tensor, residual: Tensor | None, norm: Norm) -> tuple[Tensor, Tensor]:
        total = x if residual is None else x + residual
        return normed(total, norm), total

    def activate(self, x: Tensor, activation: str, is_gated: bool) -> Tensor:
        if not is_gated:
            return apply(x, activation)
        gate, up = x.chunk(2, dim=-1)
        return apply(gate, activation) * up

    def attend(self, qkv: Tensor, attention: EncoderAttention, rows: Rows) -> Tensor:
        heads, dim = attention.spec.num_heads, attention.spec.head_dim
        q, k, v = qkv.view(len(qkv), 3, heads, dim).unbind(1)  # [T, heads, head_dim]
        cos, sin = attention.rotation[rows.positions].unsqueeze(1).chunk(2, dim=-1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = torch.empty_like(q)
        with without_cudnn(q.device):
            for group in rows.groups:
                _attend_group(q, k, v, attention, group, out)
        return out.flatten(1)


def apply(x: Tensor, activation: str) -> Tensor:
    match activation:
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "relu":
            return F.relu(x)
        case "silu":
            return F.silu(x)
    assert activation == "tanh"
    return torch.tanh(x)


def _attend_group(q: Tensor, k: Tensor, v: Tensor, attention: EncoderAttention, group: Group, out: Tensor) -> None:
    at, is_there = group
    seen = torch.ones((1, 1, 1, at.shape[1]), dtype=torch.bool, device=q.device)
    if is_there is not None:
        seen = is_there[:, None, None]
    if attention.reach:
        offsets = torch.arange(at.shape[1], device=q.device)
        seen = seen & ((offsets[:, None] - offsets).abs() <= attention.reach)
    q, k, v = (each[at].transpose(1, 2) for each in (q, k, v))  # [B, heads, L, head_dim]
    found = weighted(q, k, v, seen, attention.spec).transpose(1, 2)
    if is_there is None:
        out[at.flatten()] = found.flatten(0, 1)
    else:
        out[at[is_there]] = found[is_there]
