"""Models of transformers by the CUDA runner in Triton's interpreter: their logits against transformers' own."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.events import Token
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.source import Source
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.fallback.describe import describe
from chairlift.runner.fallback.load import load_fallback
from chairlift.runner.kv_cache import KvCache
from fakes.clocks import CountingClock
from fakes.requests import make_request
from unit.runner.fallback.families import make_twin
from unit.runner.twins import CPU, SHAPE, random_tokens

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # padding is computed from whatever lies in memory
]
LIMITS = Limits(
    vocab_size=SHAPE["vocab_size"], max_model_len=32, block_size=4, num_blocks=30, max_running=3, max_step_tokens=9
)  # fmt: skip


@pytest.mark.nightly
# Heads of 8 and of 24 with values of 12 are padded; some layers have a window, some heads a cap, some share keys.
@pytest.mark.sampled(1)
@pytest.mark.parametrize("family", ["gpt_bigcode", "deepseek_v3", "vaultgemma"])
def test_logits_of_padded_heads_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    config = describe(twin.config, is_padded=True)
    assert all(layer.attention.head_dim in (16, 32) for layer in config.layers)
    model = load_fallback(config, Source("folder", tmp_path, "twin"), CudaOps(), torch.float32, CPU, 32, True)
    runner = CudaRunner(model, KvCache(config, LIMITS.num_blocks, 4, torch.float32, CPU), CPU, LIMITS)
    rows: dict[tuple[int, int], Tensor] = {}

    def see(requests: Any, positions: Any, logits: Tensor) -> None:
        rows.update(zip(zip(requests, positions, strict=True), logits.clone(), strict=True))

    runner.on_logits = see
    engine = Engine(Scheduler(LIMITS, Fcfs()), runner, CountingClock())
    texts = {i: random_tokens(length, seed=i) for i, length in enumerate((3, 14, 6))}
    for i, text in texts.items():
        engine.add((make_request(i, text, 3, temperature=0.0),))
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Token):
                texts[event.request].append(event.token)
    for i, text in texts.items():
        expected = twin.reference_logits(text)
        for place in range(len(text) - 4, len(text) - 1):
            torch.testing.assert_close(rows[i, place], expected[place], atol=1e-4, rtol=1e-4)
