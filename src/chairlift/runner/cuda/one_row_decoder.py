"""A decoder whose steps of a single token take fewer kernels: there half of what is not reading weights is waiting
between kernels and for memory.

One kernel does what attention, its join and rotation do by themselves, another the activation with its product. Steps
of several tokens go the way they went.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.handover import early
from chairlift.runner.cuda.one_row import is_one_row
from chairlift.runner.cuda.one_row_attention import attend_kernel
from chairlift.runner.cuda.ops import CudaBatch, CudaWeight
from chairlift.runner.model import Decoder, Layer
from chairlift.runner.ops import Batch

_TILE = 16  # keys that a program reads at a time
_MAX_SPLITS = 32  # that are joined at once
_WARPS = 1
_SHORT = 512  # contexts up to this one are cut alike: each cut is a kernel to compile


@dataclass(frozen=True, slots=True)
class OneRowDecoder(Decoder):
    counters: Tensor  # int32 [K], of attention; all 0 between its launches

    def attend(self, layer: Layer, x: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        has_groups = self.config.num_heads != self.config.num_kv_heads
        if not is_one_row(x) or not isinstance(batch, CudaBatch) or batch.planned is not None or has_groups:
            return Decoder.attend(self, layer, x, keys, values, batch)
        scale, window = self.config.head_dim**-0.5, self.config.sliding_window
        out = attend_one_row(
            layer.qkv.linear(x), self.rotation, keys, values, batch, layer.q_norm, layer.k_norm,
            self.config.rms_norm_eps, scale, window, self.counters,
        )  # fmt: skip
        return layer.output.linear(out)

    def feed_forward(self, layer: Layer, x: Tensor) -> Tensor:
        if not is_one_row(x) or not isinstance(layer.gate_up, CudaWeight):
            return Decoder.feed_forward(self, layer, x)
        return layer.down.linear(layer.gate_up.gated(x))


def for_one_row(model: Decoder, device: torch.device, kind: Callable[..., Decoder]) -> Decoder:
    """The same model as another kind of decoder, which has counters; others than decoders are left as they are."""
    if not isinstance(model, Decoder):
        return model
    parts = {field.name: getattr(model, field.name) for field in fields(Decoder)}
    return kind(**parts, counters=torch.zeros(model.config.num_kv_heads, dtype=torch.int32, device=device))


def attend_one_row(
    qkv: Tensor, rotation: Tensor, keys: Tensor, values: Tensor, batch: CudaBatch, q_gain: Tensor | None,
    k_gain: Tensor | None, eps: float, scale: float, window: int, counters: Tensor,
) -> Tensor:  # fmt: skip
    """What `Ops.rotate_and_store` and then `Ops.attention` do with qkv [1, 3 * heads * head_dim]: each head has keys of
    its own."""
    _, heads, block_size, head_dim = keys.shape
    context = max(_SHORT, batch.tiling.split * batch.tiling.num_splits)
    split = max(_TILE, triton.next_power_of_2(triton.cdiv(context, _MAX_SPLITS)))
    splits = triton.next_power_of_2(triton.cdiv(context, split))
    out = torch.empty(1, heads * head_dim, dtype=qkv.dtype, device=qkv.device)
    partials = torch.empty(heads, splits, head_dim, dtype=torch.float32, device=qkv.device)
    stats = torch.empty(heads, splits, 2, dtype=torch.float32, device=qkv.device)
    attend_kernel[(heads, splits)](
        qkv, rotation, batch.positions, batch.slots, batch.table_rows, batch.tables, keys, values, q_gain, k_gain,
        partials, stats, counters, out, scale, window, batch.tables.shape[1], eps,
        HEADS=heads, DIM=head_dim, SIZE=block_size, SPLIT=split, NUM_SPLITS=splits, TILE=_TILE,
        HAS_NORM=q_gain is not None, num_warps=_WARPS, **early(True),
    )  # fmt: skip
    return out
