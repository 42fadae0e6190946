"""Hybrids on a GPU, by torch's operations: the logits of transformers, and a server's engine with prefix hits."""

import random
from pathlib import Path

import pytest
import torch

from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.events import Admitted, Token
from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.source import Source, load_model_config
from chairlift.runner.start.load import load_runner
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.gguf import GgufTensors
from fakes.clocks import CountingClock
from unit.runner.hybrids import States
from unit.runner.twins import HYBRIDS, chunk, make_twin, random_tokens, request, shuffled_tables
from unit.runner.weights.test_gguf_hybrids import make_file

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
CUDA = torch.device("cuda")


@pytest.mark.parametrize("family", HYBRIDS)
def test_chunks_and_decodes_give_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    rng, twin = random.Random(1), make_twin(tmp_path, family)
    states = States(twin.decoder(torch.float64, CUDA), 8, device=CUDA)
    lengths = (61, 33, 8)
    texts = [random_tokens(length, seed) for seed, length in enumerate(lengths)]
    wanted = [twin.reference_logits_in_float64(text) for text in texts]
    tables, done = shuffled_tables(list(lengths), 8, 40), [0, 0, 0]
    while left := [i for i, text in enumerate(texts) if done[i] < len(text)]:
        counts = {i: min(rng.choice((1, 1, 3, 8, 17)), lengths[i] - done[i]) for i in left}
        chunks = [chunk(texts[i], done[i], n, tables[i], request(texts[i], id=i)) for i, n in counts.items()]
        for row, (i, n) in zip(states.run(chunks).cpu(), counts.items(), strict=True):
            done[i] += n
            torch.testing.assert_close(row, wanted[i][done[i] - 1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", HYBRIDS)
def test_a_gguf_file_gives_the_logits_of_transformers(tmp_path: Path, family: str) -> None:
    twin, path = make_file(tmp_path, family)
    header, tokens = read_header(path), random_tokens(29)
    config = load_gguf(header)
    decoder = build_model(config, TorchOps(), GgufTensors(header), torch.float64, CUDA, config.max_model_len)
    states = States(decoder, 8, device=CUDA)
    for start, count in ((0, 11), (11, 18)):
        logits = states.run([chunk(tokens, start, count, [3, 1, 0, 6], request(tokens))])
    expected = twin.reference_logits_in_float64(tokens)[-1]
    torch.testing.assert_close(logits[-1].cpu(), expected, rtol=0, atol=1e-4)  # the file is in float32


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_an_engine_serves_a_crowd_and_goes_on_from_checkpoints(tmp_path: Path, dtype: str) -> None:
    make_twin(tmp_path, "qwen3.5")
    source = Source("folder", tmp_path, "twin")
    settings = Settings(device="cuda", dtype=dtype, num_blocks=2000, max_running=8)
    loaded = load_runner(settings, source, load_model_config(source))
    assert loaded.kernels == "torch"
    engine = Engine(Scheduler(loaded.limits, Fcfs()), loaded.runner, CountingClock())
    shared, greedy = random_tokens(50), SamplingParams(temperature=0.0)
    tokens: dict[int, list[int]] = {}
    num_found = num_finished = 0
    for turn in range(2):
        for index in range(12):
            prompt = (*shared, *random_tokens(1 + 3 * index, seed=index))
            own = RequestId(100 * turn + index)
            engine.add((Request(id=own, prompt=prompt, params=greedy, max_output=20, seed=1),))
        while engine.has_work:
            for event in engine.step():
                num_found += isinstance(event, Admitted) and event.num_cached > 0
                if isinstance(event, Token):
                    tokens.setdefault(int(event.request), []).append(event.token)
                    num_finished += event.finish is not None
    assert num_finished == 24
    assert num_found >= 12
    if dtype == "float64":  # in others what shares a step may decide between close logits
        assert all(tokens[index] == tokens[100 + index] for index in range(12))
