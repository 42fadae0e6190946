"""Keys and values kept as bytes: near those kept as floats, refused where the kernels cannot, planned for by size."""

from dataclasses import replace
from itertools import chain

import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.runner.kernels import pick_kv_dtype
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.start.synthetic_steps import synthetic_step
from chairlift.runner.torch.batching import batch_of
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.worlds.models import CONFIG, world_limits

CPU = torch.device("cpu")
LIMITS = world_limits(16, 4, 4, 64)
needs_kernels = pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")


def logits(dtype: torch.dtype, kv_dtype: torch.dtype) -> torch.Tensor:
    model = build_model(CONFIG, NativeOps(2), DummyTensors(CONFIG), dtype, CPU, CONFIG.max_model_len)
    kv = KvCache(CONFIG, LIMITS.num_blocks, LIMITS.block_size, kv_dtype, CPU)
    batch = batch_of(synthetic_step([(0, 40)], LIMITS, 0, stride=7), LIMITS.block_size, {}, CPU)
    return model.logits(model.hidden(replace(batch, logit_rows=None), kv))


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_logits_are_near_those_over_floats(dtype: torch.dtype) -> None:
    kept, expected = logits(dtype, torch.int8), logits(dtype, dtype)
    assert not torch.equal(kept, expected)
    assert (kept - expected).norm() / expected.norm() < (0.01 if dtype is torch.float32 else 0.02)


def test_a_block_takes_a_byte_for_each_value_and_a_float_for_each_head() -> None:
    spec = CONFIG.layers[0].attention
    heads = 2 * CONFIG.num_layers * spec.num_kv_heads * 16
    assert kv_bytes_per_block(CONFIG, 16, torch.int8) == heads * (spec.head_dim + 4)
    kv = KvCache(CONFIG, 3, 16, torch.int8, CPU)
    assert sum(m.nbytes for m in chain(*kv.state)) == 3 * kv_bytes_per_block(CONFIG, 16, torch.int8)


def test_only_the_native_kernels_keep_bytes() -> None:
    assert pick_kv_dtype("int8", "native", torch.float32) is torch.int8
    with pytest.raises(InvalidConfig, match="kv_dtype int8: only the native kernels .* use --kv-dtype auto$"):
        pick_kv_dtype("int8", "torch", torch.float32)
