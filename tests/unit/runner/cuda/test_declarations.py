"""Models whose layers differ, by the CUDA runner in Triton's interpreter, against the independent reference."""

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.events import Token
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.verify import dense
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.weights.assemble import build_model
from fakes.clocks import CountingClock
from fakes.declarations import MAX_LEN, VOCAB, DrawnTensors, random_declaration
from fakes.requests import make_request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    # Padding is computed from whatever lies in memory, and an activation's exponential may be beyond all measure.
    pytest.mark.usefixtures("no_gpu"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

CPU = torch.device("cpu")
LIMITS = Limits(vocab_size=VOCAB, max_model_len=MAX_LEN, block_size=4, num_blocks=30, max_running=2, max_step_tokens=9)
PROMPTS = [[7 * i * place % VOCAB for place in range(length)] for i, length in enumerate((3, 11), 1)]
NUM_TOKENS = 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("max_running", [1, 2])
# 11: queries that grow with their position, after norms of heads.
@pytest.mark.parametrize("seed", [0, 11, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 11))])
def test_logits_are_those_of_the_reference(seed: int, max_running: int) -> None:
    """Alone every token but the prompt's is a single row."""
    config, limits = random_declaration(seed, head_dims=(16, 32)), replace(LIMITS, max_running=max_running)
    dtype = torch.float32 if max_running > 1 else torch.float16  # single rows of 16 bits have kernels of their own
    model = build_model(config, CudaOps(), DrawnTensors(), dtype, CPU, MAX_LEN)
    runner = CudaRunner(model, KvCache(config, limits.num_blocks, 4, dtype, CPU), CPU, limits)
    rows: dict[tuple[int, int], Tensor] = {}

    def see(requests: Any, positions: Any, logits: Tensor) -> None:
        rows.update(zip(zip(requests, positions, strict=True), logits.clone(), strict=True))

    runner.on_logits = see
    engine = Engine(Scheduler(limits, Fcfs()), runner, CountingClock())
    requests = [make_request(i, prompt, NUM_TOKENS, temperature=0.0) for i, prompt in enumerate(PROMPTS)]
    for request in requests:
        engine.add((request,))
    texts = [list(prompt) for prompt in PROMPTS]
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, Token):
                texts[event.request].append(event.token)
    counts = [NUM_TOKENS] * len(texts)
    names = str(dtype).removeprefix("torch.")
    answered = [text[:-1] for text in texts]
    wanted = dense.logits_of(config, DrawnTensors(), names, "cpu", answered, counts, lambda *_: None)
    assert len(rows) == sum(counts)
    for i, prompt in enumerate(PROMPTS):
        got = np.stack([rows[i, place].numpy() for place in range(len(prompt) - 1, len(texts[i]) - 1)])
        error = np.abs(got - np.stack(wanted[i])).max() / np.stack(wanted[i]).std()
        assert error < (2e-3 if dtype is torch.float32 else 0.05), (i, error)
