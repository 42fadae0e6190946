"""Whole models on MindSpore and on torch, in float32: the same tokens, and logits as near as float32 allows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chairlift.build import find_model
from chairlift.config.settings import Settings
from chairlift.core.params import SamplingParams
from chairlift.core.structured import Structured
from chairlift.lab.verify.cases import greedy
from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.opened import OpenedModel, PromptSpec, prompts_for
from chairlift.lab.verify.tolerance import tolerance_of
from chairlift.llm import LLM
from fakes.tiny_model import write_tiny_model

# Chunked prompts: a step takes fewer tokens than most of them have.
OPTIONS: dict[str, Any] = {"dtype": "float32", "max_step_tokens": 24, "max_running": 20, "block_size": 4}
TORCH: dict[str, Any] = {"device": "cpu", "kernels": "torch"}
MINDSPORE: dict[str, Any] = {"device": "mindspore:cpu"}
TEXT = "the lift climbs over snow and rock to a hut where soup is hot and the view is wide, and down again"
PROMPTS = [TEXT[i : 6 * i + 4] for i in range(20)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny", max_position_embeddings=256)


@pytest.mark.parametrize("model", ["tiny", "embedded"])
def test_twenty_prompts_get_the_tokens_and_the_logits_of_torch(model: str, tiny: Path) -> None:
    name = str(tiny) if model == "tiny" else None
    outputs = []
    for device in (TORCH, MINDSPORE):
        opened = OpenedModel.open(
            find_model(Settings(model=name, max_model_len=256, num_blocks=600, **OPTIONS, **device))
        )
        spec = PromptSpec(prompts=PROMPTS, num_tokens=6)
        outputs.append(opened.as_configured(greedy(prompts_for(opened.model, spec), spec.num_tokens)))
    deviation = Deviation.of(*outputs)
    assert (deviation.num_texts, deviation.num_other_texts) == (20, 0)
    # Torch's own float32 is 1e-4 spreads from float64 on these prompts.
    assert deviation.num_rows == 20 * 6 and tolerance_of("float32", "float32", "none").holds(deviation)


@pytest.fixture(scope="module")
def pair(tiny: Path) -> tuple[LLM, LLM]:
    # Blocks for a few of the requests: others are preempted.
    options = OPTIONS | {"num_blocks": 60, "max_model_len": 128}
    return LLM(str(tiny), **options, **TORCH), LLM(str(tiny), **options, **MINDSPORE)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=12, temperature=0.9, seed=3, n=3),
        SamplingParams(max_tokens=12, temperature=0.8, seed=4, top_p=0.9, top_k=20, repetition_penalty=1.2),
        SamplingParams(
            max_tokens=12, temperature=0.0, structured_outputs=Structured.regex("[a-z]{2,9}( [a-z]{2,9}){0,3}")
        ),
    ],
    ids=["samples", "filters", "structured"],
)
def test_sampled_and_structured_answers_are_those_of_torch(pair: tuple[LLM, LLM], params: SamplingParams) -> None:
    there, here = ([each.outputs for each in llm.generate(PROMPTS, params)] for llm in pair)
    assert [[sample.token_ids for sample in each] for each in here] == [
        [sample.token_ids for sample in each] for each in there
    ]


def test_log_probabilities_are_near_those_of_torch(pair: tuple[LLM, LLM]) -> None:
    params = SamplingParams(max_tokens=4, temperature=0.0, logprobs=2, prompt_logprobs=1)
    there, here = (llm.generate(PROMPTS[:6], params) for llm in pair)
    for one, other in zip(here, there, strict=True):
        told = [[*each.prompt_logprobs[1:], *each.outputs[0].logprobs] for each in (one, other)]
        firsts = [[next(iter(each.items())) for each in all_of] for all_of in told]
        assert [token for token, _ in firsts[0]] == [token for token, _ in firsts[1]]
        np.testing.assert_allclose(*([found.logprob for _, found in each] for each in firsts), atol=1e-4)
