"""Replayed steps have the bits of steps that Python calls kernel by kernel."""

from itertools import chain
from pathlib import Path

import pytest
import torch

from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import Checkpoint
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.native.tape import MAX_ROWS, TapedDecoder, taped_decoder
from chairlift.runner.ops import Batch
from chairlift.runner.start.synthetic_steps import synthetic_step
from chairlift.runner.torch.batching import batch_of
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.hf import HfTensors
from fakes.worlds.models import CONFIG, world_limits
from unit.runner.hybrids import States
from unit.runner.twins import chunk, make_twin, random_tokens, request

pytestmark = pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")

CPU = torch.device("cpu")
LIMITS: Limits = world_limits(64, 4, 16, 64)


def decodes(contexts: list[int]) -> Batch:
    spans = [(context, 1) for context in contexts]
    return batch_of(synthetic_step(spans, LIMITS, len(contexts)), LIMITS.block_size, {}, CPU)


def taped() -> TapedDecoder:
    ops = NativeOps(1)
    return TapedDecoder(
        build_model(CONFIG, ops, DummyTensors(CONFIG), torch.float32, CPU, CONFIG.max_model_len), ops.calls
    )


def cache(dtype: torch.dtype) -> KvCache:
    kv = KvCache(CONFIG, LIMITS.num_blocks, LIMITS.block_size, dtype, CPU)
    for memory in chain(*kv.state):
        memory.copy_(torch.randn(memory.shape, generator=torch.Generator().manual_seed(3)))
    return kv


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_replayed_step_has_the_bits_of_one_that_python_calls(dtype: torch.dtype) -> None:
    ops = NativeOps(2)
    plain = build_model(CONFIG, ops, DummyTensors(CONFIG), dtype, CPU, CONFIG.max_model_len)
    model, kv, other = TapedDecoder(plain, ops.calls), cache(dtype), cache(dtype)
    for contexts in ([5], [9], [60], [3, 17], [17, 3], [5], list(range(1, 9)), [40] * 8):
        expected = plain.hidden(decodes(contexts), other)
        assert torch.equal(model.hidden(decodes(contexts), kv), expected), contexts
    assert all(torch.equal(a, b) for a, b in zip(chain(*kv.state), chain(*other.state), strict=True))


def test_a_size_is_recorded_once_and_again_for_another_cache() -> None:
    model = taped()
    first, second = cache(torch.float32), cache(torch.float32)
    model.hidden(decodes([5]), first)
    tape = model._tapes[1]
    model.hidden(decodes([9]), first)
    assert model._tapes[1] is tape
    model.hidden(decodes([9]), second)
    assert model._tapes[1].kv is second


def test_prompts_and_large_steps_are_not_recorded() -> None:
    model = taped()
    kv = cache(torch.float32)
    model.hidden(decodes([5] * (MAX_ROWS + 1)), kv)
    model.hidden(batch_of(synthetic_step([(0, 5)], LIMITS, 0), LIMITS.block_size, {}, CPU), kv)
    assert not model._tapes


@pytest.mark.parametrize("family", ["qwen3.5", "qwen3.5-moe"])
def test_decodes_of_hybrids_are_replayed_but_those_that_pass_a_checkpoint(tmp_path: Path, family: str) -> None:
    twin, ops = make_twin(tmp_path, family), NativeOps(2)
    plain = build_model(twin.config, ops, HfTensors(twin.folder), torch.bfloat16, CPU, twin.config.max_model_len)
    model = taped_decoder(plain, ops.calls)
    assert isinstance(model, TapedDecoder)
    assert all(torch.equal(a, b) for a, b in zip(decoded(plain, plain), decoded(plain, model), strict=True))
    assert list(model._tapes) == [2]


def decoded(plain: Decoder, model: Decoder | TapedDecoder) -> list[torch.Tensor]:
    """Logits of two texts, a token of each at a time, and what is in the cache then."""
    states = States(plain, 8)
    states.decoder = model
    texts = {request(random_tokens(30, id), id=id): table for id, table in ((0, [7, 3, 9, 0]), (1, [5, 1, 2, 8]))}
    kept, found = tuple(states.pages(3)[: states.kind.num_pages]), []
    for start, count in ((0, 5), *((position, 1) for position in range(5, 30))):
        chunks = [chunk(random_tokens(30, of.id), start, count, table, of) for of, table in texts.items()]
        found.append(states.run(chunks, (Checkpoint(RequestId(1), 0, 16, kept),) if start == 15 else ()))
    return found + [memory.view(torch.uint8) for memory in chain(*states.kv.state)]
