"""Beam search through the engine gives the answers that Hugging Face's `generate` gives with early stopping."""

import pytest
import torch

from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.wire.recipients import Recipients
from chairlift.live.wire.switchboard import Switchboard
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.runner import TorchRunner
from fakes.clocks import CountingClock
from fakes.submits import submit
from unit.runner.twins import CPU, SHAPE, Twin, make_twin, random_tokens

PROMPTS = [random_tokens(count, seed=count) for count in (1, 5, 12, 23)]
PAD = SHAPE["vocab_size"]  # no token of the model
MAX_TOKENS = 14


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    made = make_twin(tmp_path_factory.mktemp("beams"), "llama-gqa-tied")
    made.reference.double()
    return made


def searched(twin: Twin, params: SamplingParams, block_size: int = 4) -> list[list[list[int]]]:
    """The answers to every prompt, all searched at once."""
    limits = Limits(
        vocab_size=SHAPE["vocab_size"], max_model_len=128, block_size=block_size, num_blocks=800 // block_size,
        max_running=32, max_step_tokens=64,
    )  # fmt: skip
    cache = KvCache(twin.config, limits.num_blocks, block_size, torch.float64, CPU)
    runner = TorchRunner(twin.decoder(torch.float64), cache, CPU)
    scheduler = Scheduler(limits, Fcfs())
    switchboard = Switchboard(Engine(scheduler, runner, CountingClock()), limits, (), Recipients(scheduler.live))
    for key, prompt in enumerate(PROMPTS):
        switchboard.submit(b"", submit(key, prompt, params))
    answers: list[list[list[int]]] = [[[] for _ in range(params.n)] for _ in PROMPTS]
    while switchboard.has_work:
        for output in switchboard.step().get(b"", ()):
            assert output.error is None and output.token is not None
            answers[output.key][output.sample].append(output.token)
    assert scheduler.pool.num_free == limits.num_blocks
    return answers


def reference(twin: Twin, prompt: list[int], params: SamplingParams) -> list[list[int]]:
    with torch.no_grad():
        sequences = twin.reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            num_beams=params.beam_width,
            num_return_sequences=params.n,
            early_stopping=True,
            length_penalty=params.length_penalty,
            do_sample=False,
            max_new_tokens=params.max_tokens,
            eos_token_id=list(params.stop_token_ids) or None,
            pad_token_id=PAD,
        )
    return [[token for token in row if token != PAD] for row in sequences[:, len(prompt) :].tolist()]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0, -1.0])
@pytest.mark.parametrize("num_stops", [0, 1, 6])
@pytest.mark.parametrize(("width", "n"), [(1, 1), (2, 2), (4, 2), (7, 7)])
def test_the_answers_are_those_of_the_reference(
    twin: Twin, width: int, n: int, num_stops: int, length_penalty: float
) -> None:
    stops = tuple(random_tokens(40, seed=3)[:num_stops])
    params = SamplingParams(
        beam_width=width, n=n, length_penalty=length_penalty, max_tokens=MAX_TOKENS, stop_token_ids=stops
    )
    assert searched(twin, params) == [reference(twin, prompt, params) for prompt in PROMPTS]


@pytest.mark.parametrize("block_size", [1, 2, 16])
def test_the_block_size_changes_nothing(twin: Twin, block_size: int) -> None:
    params = SamplingParams(beam_width=5, n=3, max_tokens=MAX_TOKENS, stop_token_ids=tuple(random_tokens(6, seed=3)))
    answers = searched(twin, params, block_size)
    assert answers == searched(twin, params, 4)
    assert any(answer[-1] in params.stop_token_ids for prompt in answers for answer in prompt)
    assert any(len(answer) == MAX_TOKENS for prompt in answers for answer in prompt)
