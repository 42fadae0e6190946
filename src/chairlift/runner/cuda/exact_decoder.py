"""A decoder whose exact steps of a single token take fewer kernels; their bits are those of any other step."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from chairlift.runner.cuda.exact_attend import attend_one_row
from chairlift.runner.cuda.exact_product import ExactWeight
from chairlift.runner.cuda.exact_trial import can_fuse
from chairlift.runner.cuda.one_row_decoder import for_one_row
from chairlift.runner.cuda.ops import CudaBatch
from chairlift.runner.model import Decoder, Layer
from chairlift.runner.ops import Batch


@dataclass(frozen=True, slots=True)
class ExactDecoder(Decoder):
    counters: Tensor  # int32 [K], of attention; all 0 between its launches
    is_fused: bool  # attention of a single token is one kernel

    def attend(self, layer: Layer, x: Tensor, keys: Tensor, values: Tensor, batch: Batch) -> Tensor:
        if len(x) > 1 or not self.is_fused or not isinstance(batch, CudaBatch) or batch.tiles is not None:
            return Decoder.attend(self, layer, x, keys, values, batch)
        out = attend_one_row(
            layer.qkv.linear(x), self.rotation, keys, values, batch.positions, batch.slots, batch.table_rows,
            batch.tables, batch.tiling, self.config.num_heads, self.config.head_dim**-0.5, self.config.sliding_window,
            self.counters,
        )  # fmt: skip
        return layer.output.linear(out)

    def feed_forward(self, layer: Layer, x: Tensor) -> Tensor:
        if not isinstance(layer.gate_up, ExactWeight):
            return Decoder.feed_forward(self, layer, x)
        return layer.down.linear(layer.gate_up.gated(x, self.ops.silu_mul))


def exact_decoder(model: Decoder, block_size: int, width: int, device: torch.device) -> Decoder:
    """The same model as such a decoder; width: of block tables. What the device computes is tried before it serves."""
    if not isinstance(model, Decoder):
        return model
    # Without a device there is nothing to find out.
    is_fused = can_fuse(model, block_size, width, device) if device.type == "cuda" else not model.config.has_qk_norm
    return for_one_row(model, device, partial(ExactDecoder, is_fused=is_fused))
