"""How large the pool is, and how long a request may be in it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chairlift.config.settings import LlmServing, Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.models.source import Source
from chairlift.models.spec import uniform_model
from chairlift.runner.memory.sizing import limits_without_pool, lowered, with_pool

MIB = 2**20
GIB = 2**30
EMBEDDED = Source("gguf", Path("m.gguf"), "m", is_embedded=True)
OTHER = Source("gguf", Path("m.gguf"), "m")
# A request of full length takes 360 MiB, as one of the embedded model does in float32.
LIMITS = Limits(vocab_size=9, max_model_len=8192, block_size=16, num_blocks=1, max_running=128, max_step_tokens=512)
BLOCK = 360 * MIB // 512


def pool(source: Source, free: int, block_bytes: int = BLOCK, **settings: object) -> Limits:
    return with_pool(LIMITS, Settings(**settings), source, block_bytes, None, free)


def test_the_embedded_model_s_cache_holds_several_requests_of_full_length_and_no_more_than_is_free() -> None:
    found = pool(EMBEDDED, 18 * GIB)
    assert found == replace(LIMITS, num_blocks=1024 * MIB // BLOCK)
    assert found.num_full_length > 2.8
    assert pool(EMBEDDED, 2 * GIB) == replace(LIMITS, num_blocks=512 * MIB // BLOCK)
    assert pool(EMBEDDED, 800 * MIB) == replace(LIMITS, num_blocks=512)


def test_a_quarter_of_what_is_free_is_taken_and_half_where_one_request_needs_it() -> None:
    assert pool(OTHER, 18 * GIB).num_blocks == 18 * GIB // 4 // BLOCK
    assert pool(OTHER, 1000 * MIB) == replace(LIMITS, num_blocks=512)
    assert pool(OTHER, 600 * MIB) == replace(LIMITS, num_blocks=300 * MIB // BLOCK, max_model_len=6816)


def test_no_longer_requests_are_offered_than_the_pool_holds() -> None:
    for found in (pool(OTHER, GIB, num_blocks=100), pool(OTHER, GIB, kv_memory=100 * BLOCK)):
        assert (found.num_blocks, found.max_model_len) == (100, 1600)
        assert lowered(found, 8192) == (
            "max_model_len is 1600 instead of 8192: the KV cache holds no more; "
            "--kv-memory, --num-blocks or, on a GPU, --memory makes it larger"
        )
    assert with_pool(LIMITS, Settings(), OTHER, BLOCK, num_measured=100, free=0).max_model_len == 1600  # of a GPU
    assert lowered(LIMITS, 8192) is None


def test_a_length_that_was_asked_for_is_refused_where_the_pool_does_not_hold_it() -> None:
    with pytest.raises(InvalidConfig, match="max_model_len 8192 is more than the 1600 tokens .* lower --max-model-len"):
        pool(OTHER, GIB, num_blocks=100, max_model_len=8192)
    clipped = pool(OTHER, GIB, num_blocks=100, max_model_len=8192, compat=LlmServing(can_clip_max_model_len=True))
    assert clipped.max_model_len == 1600


@pytest.mark.parametrize(
    ("gib", "given", "wanted"),
    [
        (24, {}, 512), (80, {}, 1024), (80, {"memory": 0.5}, 512), (80, {"max_running": 7}, 7),
        (80, {"max_step_tokens": 700}, 700), (24, {"max_step_tokens": 700}, 512),
    ],
)  # fmt: skip
def test_large_gpus_run_more_requests_at_once(gib: int, given: dict[str, Any], wanted: int) -> None:
    model = uniform_model(
        architecture="LlamaForCausalLM", hidden_size=64, num_layers=1, num_heads=4, num_kv_heads=4, head_dim=16,
        intermediate_size=64, vocab_size=64, max_model_len=512, rms_norm_eps=1e-5, rope_theta=10000.0,
    )  # fmt: skip
    limits = limits_without_pool(Settings(**given), model, torch.device("cuda"), memory=gib << 30)
    assert limits.max_running == wanted
