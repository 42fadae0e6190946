"""Real ranks over gloo: in float64 equal to one, with `exact` the same bits whatever shares a step."""

import gc
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chairlift import LLM, Logprob, SamplingParams
from chairlift.build import ResolvedModel, find_model, load
from chairlift.config.options.resolve import resolve
from chairlift.core.errors import InvalidConfig
from chairlift.core.ports import DeviceLost
from chairlift.core.structured import Structured
from chairlift.lab.verify.batch import against_batch
from chairlift.lab.verify.cases import greedy
from chairlift.lab.verify.opened import OpenedModel, PromptSpec, prompts_for
from chairlift.lab.verify.report import Verdict
from fakes.patience import wait_until
from fakes.processes import children
from fakes.tiny_model import write_tiny_model
from unit.runner.twins import make_twin, random_tokens

SPEC = PromptSpec(num_prompts=4, num_tokens=6)


HYBRID_SPEC = PromptSpec(prompts=[random_tokens(length, length) for length in (3, 15, 33)], num_tokens=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_twin(tmp_path_factory.mktemp("models"), "qwen3.5").folder


def resolved(folder: Path, count: int, **options: Any) -> ResolvedModel:
    plain = {"device": "cpu", "kernels": "torch", "dtype": "float64", "threads": 1, "max_running": 9,
             "max_model_len": 512, "kv_memory": 1 << 22}  # fmt: skip
    return find_model(resolve({"model": str(folder), "tensor_parallel": count, **plain, **options}))


def rank_pids() -> list[int]:
    return [*children(os.getpid(), "cl-rank")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_give_the_tokens_and_logits_of_one(folder: Path, count: int) -> None:
    check_equal(folder, SPEC, count)


def test_ranks_of_a_hybrid_give_the_tokens_and_logits_of_one(hybrid: Path) -> None:
    check_equal(hybrid, HYBRID_SPEC, 2, max_model_len=128)


def check_equal(folder: Path, spec: PromptSpec, count: int, **options: Any) -> None:
    model = resolved(folder, 1, exact=True, **options)
    cases = greedy(prompts_for(model, spec), spec.num_tokens)
    alone, ranks = OpenedModel.open(model), OpenedModel.open(resolved(folder, count, exact=True, **options))
    expected, ours = alone.as_configured(cases), ranks.as_configured(cases)
    for key, output in expected.items():
        assert ours[key].tokens == output.tokens
        assert output.rows and ours[key].rows.keys() == output.rows.keys()
        for position, row in output.rows.items():
            np.testing.assert_allclose(ours[key].rows[position], row, atol=1e-12, rtol=1e-10)
    # The number of ranks is part of the fingerprint, and nothing else here is.
    assert ranks.loaded.num_ranks == count
    assert ranks.loaded.fingerprint not in (None, alone.loaded.fingerprint)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("count", "options"), [
    (2, {"kernels": "auto", "dtype": "bfloat16"}),
    pytest.param(4, {"dtype": "float32"}, marks=pytest.mark.nightly),
])  # fmt: skip
def test_exact_bits_do_not_depend_on_what_shares_a_step(folder: Path, count: int, options: dict[str, Any]) -> None:
    model = resolved(folder, count, exact=True, kv_memory=None, **options)
    report = against_batch(model, SPEC, lambda *_: None)
    assert report.verdict is Verdict.PASS, report.why


@pytest.mark.slow
def test_exact_bits_of_a_hybrid_do_not_depend_on_what_shares_a_step(hybrid: Path) -> None:
    options = {"kernels": "auto", "dtype": "bfloat16", "kv_memory": None, "max_model_len": 128}
    report = against_batch(resolved(hybrid, 2, exact=True, **options), HYBRID_SPEC, lambda *_: None)
    assert report.verdict is Verdict.PASS, report.why


def chosen(told: dict[int, Logprob]) -> float:
    return next(iter(told.values())).logprob


@pytest.mark.nightly
def test_every_kind_of_request_is_answered_as_by_one(folder: Path) -> None:
    kinds = [
        SamplingParams(seed=3, n=3, max_tokens=9, top_p=0.9, repetition_penalty=1.2),
        SamplingParams(beam_width=3, n=2, max_tokens=6),
        SamplingParams(temperature=0.0, max_tokens=5, logprobs=2, prompt_logprobs=2),
        SamplingParams(seed=1, max_tokens=20, structured_outputs=Structured.regex("[a-z]{3,9}")),
    ]
    options = {"device": "cpu", "dtype": "float64", "max_model_len": 128, "num_blocks": 24, "preemption": "swap"}
    one, two = (LLM(str(folder), tensor_parallel=count, **options) for count in (1, 2))
    for params in kinds:
        answers = [llm.generate(["the lift goes up"] * 3, params, use_tqdm=False) for llm in (one, two)]
        texts = [[[sample.token_ids for sample in each.outputs] for each in answer] for answer in answers]
        assert texts[0] == texts[1]
        scores = [[chosen(told) for each in answer for told in (each.prompt_logprobs or ())[1:]] for answer in answers]
        assert scores[0] == pytest.approx(scores[1], abs=1e-9)
        assert bool(scores[0]) == bool(params.prompt_logprobs)


@pytest.mark.slow
def test_a_killed_rank_fails_the_call_and_leaves_no_other(folder: Path) -> None:
    before = set(rank_pids())
    llm = LLM(str(folder), tensor_parallel=2, device="cpu", kernels="torch", max_model_len=512, kv_memory="4MiB")
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    assert len(llm.generate(["the lift"], params)[0].outputs[0].token_ids) == 4
    (pid,) = set(rank_pids()) - before
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(DeviceLost, match="rank"):
        llm.generate(["the lift"], params)


def test_ranks_end_with_the_model_that_they_compute(folder: Path) -> None:
    before = set(rank_pids())
    loaded = load(resolved(folder, 2))
    assert len(set(rank_pids()) - before) == 1
    gc.unfreeze()
    del loaded
    gc.collect()
    wait_until(lambda: not set(rank_pids()) - before)


def test_a_number_of_ranks_that_does_not_fit_is_refused_before_any_is_started(folder: Path) -> None:
    before = rank_pids()
    with pytest.raises(InvalidConfig, match=r"tensor_parallel 3: num_attention_heads 4 .* use --tensor-parallel 2$"):
        load(resolved(folder, 3))
    with pytest.raises(InvalidConfig, match="tensor_parallel 2: not on device mindspore; use --device cuda or cpu"):
        resolve({"tensor_parallel": 2, "device": "mindspore"})
    assert rank_pids() == before
