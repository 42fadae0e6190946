"""A layer's arithmetic in MindSpore's operations, compiled once for all sizes of step and all layers of its kind.

    residual -> before -> queries, keys, values -> attention (elsewhere) -> attended
    residual, attended -> after -> residual

Always: norms and rotations are computed in float32 at least.
"""

import math
from typing import Any

import mindspore as ms
from mindspore import ops

from chairlift.models.spec import LayerSpec
from chairlift.runner.mindspore.weight import times

# 0.5 x (1 + tanh(u)) is x sigmoid(2u), and 2u = _GELU * (x + 0.044715 x^3).
_GELU = 2 * math.sqrt(2 / math.pi)


def rms_norm(x: Any, gain: Any, eps: float) -> Any:
    wide = x.astype(gain.dtype)
    return (wide * ops.rsqrt(ops.mean(wide * wide, -1, True) + eps) * gain).astype(x.dtype)


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    """x [T, h, head_dim]: turns each pair (x[i], x[i + head_dim / 2]) by its angle; cos, sin [T, 1, head_dim / 2]"""
    half = x.shape[-1] // 2
    wide = x.astype(cos.dtype)
    first, second = ops.split(wide, half, -1)
    return ops.cat((first * cos - second * sin, second * cos + first * sin), -1).astype(x.dtype)


def activated(gate_up: Any, width: int, activation: str) -> Any:
    gate, up = ops.split(gate_up, width, -1)
    if activation == "gelu_tanh":
        return gate * ops.sigmoid(gate * (_GELU + _GELU * 0.044715 * gate * gate)) * up
    return gate * ops.sigmoid(gate) * up


def make_before(spec: LayerSpec, eps: float, stored: tuple[int, ...]) -> Any:
    """stored: the shape that keys and values are wanted in, -1 for its first length. Not made outside, where it takes
    longer than the rest of attention."""
    heads = spec.attention
    width, num_heads, num_kv = heads.head_dim, heads.num_heads, heads.num_kv_heads

    def before(
        residual: Any, norm: Any, qkv: Any, bias: Any, q_norm: Any, k_norm: Any, cos: Any, sin: Any
    ) -> tuple[Any, Any, Any]:
        """-> queries [T, heads * head_dim], keys, values"""
        x = residual if norm is None else rms_norm(residual, norm, eps)
        parts = times(x, qkv) if bias is None else times(x, qkv) + bias
        parts = parts.reshape((-1, num_heads + 2 * num_kv, width))
        q, k, v = ops.split(parts, (num_heads, num_kv, num_kv), 1)
        if q_norm is not None:
            q, k = rms_norm(q, q_norm, eps), rms_norm(k, k_norm, eps)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return q.reshape((-1, num_heads * width)), k.reshape(stored), v.reshape(stored)

    return ms.jit(before, dynamic=1)


def make_after(spec: LayerSpec, eps: float) -> Any:
    factor, width, activation = spec.residual_factor, spec.feed_forward.width, spec.feed_forward.activation

    def added(residual: Any, x: Any, norm: Any) -> Any:
        x = x if norm is None else rms_norm(x, norm, eps)
        return residual + (x if factor == 1.0 else x * factor)

    def after(
        residual: Any, attended: Any, output: Any, after_attention: Any, before_feed_forward: Any, gate_up: Any,
        down: Any, after_feed_forward: Any,
    ) -> Any:  # fmt: skip
        residual = added(residual, times(attended, output), after_attention)
        x = residual if before_feed_forward is None else rms_norm(residual, before_feed_forward, eps)
        x = activated(times(x, gate_up), width, activation)
        return added(residual, times(x, down), after_feed_forward)

    return ms.jit(after, dynamic=1)
