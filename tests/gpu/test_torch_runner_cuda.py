"""The plain torch path on a CUDA device: the same logits as on a CPU, and whole models loaded and run there."""

from pathlib import Path

import pytest
import torch

from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.events import Token
from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.source import Source, load_model_config
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.start.load import load_runner
from fakes.clocks import CountingClock
from unit.runner.twins import FAMILIES, chunk, make_twin, random_tokens, request, run, shuffled_tables

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
CUDA = torch.device("cuda")


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_and_decodes_give_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    twin = make_twin(tmp_path, family)
    decoder = twin.decoder(device=CUDA)
    kv = KvCache(twin.config, 40, 4, torch.float32, CUDA)
    prompts = [random_tokens(length, seed=length) for length in (30, 41, 9)]  # longrope's long factors begin at 9
    tables = shuffled_tables([len(p) for p in prompts], 4, 40)
    requests = [request(p, id=i) for i, p in enumerate(prompts)]
    done = [0, 0, 0]
    for counts in ([12, 20, 1], [1, 20, 1], [16, 1, 1], [1]):
        chunks = [chunk(prompts[i], done[i], count, tables[i], requests[i]) for i, count in enumerate(counts)]
        logits = run(decoder, kv, chunks).cpu()
        for i, count in enumerate(counts):
            done[i] += count
            expected = twin.reference_logits(prompts[i])[done[i] - 1]
            torch.testing.assert_close(logits[i], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["qwen3-qk-norm", "deepseek2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_a_model_is_loaded_and_serves_a_mixed_batch(tmp_path: Path, dtype: str, family: str) -> None:
    make_twin(tmp_path, family)
    source = Source("folder", tmp_path, "twin")
    settings = Settings(device="cuda", dtype=dtype, kv_memory=2**20)
    loaded = load_runner(settings, source, load_model_config(source))
    assert family != "deepseek2" or loaded.kernels == "torch"
    engine = Engine(Scheduler(loaded.limits, Fcfs()), loaded.runner, CountingClock())
    kinds = [
        SamplingParams(temperature=0.0), SamplingParams(logprobs=2), SamplingParams(top_p=0.8, prompt_logprobs=1),
        SamplingParams(top_k=5, repetition_penalty=1.3, logit_bias={3: 1.0}, min_tokens=3),
    ]  # fmt: skip
    for index in range(40):
        prompt = tuple(random_tokens(3 + index, seed=index))
        params = kinds[index % len(kinds)]
        engine.add(
            (
                Request(
                    id=RequestId(index), prompt=prompt, params=params, max_output=10, seed=1, stop_ids=frozenset({2})
                ),
            )
        )
    finished = 0
    while engine.has_work:
        for event in engine.step():
            finished += isinstance(event, Token) and event.finish is not None
    assert (finished, loaded.device, loaded.dtype) == (40, "cuda", dtype)
