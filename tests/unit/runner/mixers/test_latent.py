"""Latent attention in whole worlds, against transformers; its two ways against each other."""

from pathlib import Path

import numpy as np
import pytest
import torch

from chairlift.lab.verify.drive import ScriptedRequest
from chairlift.runner.mixers.latent import Latent
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.hf import HfTensors
from fakes.family_configs import CONFIGS
from fakes.requests import make_samples
from fakes.worlds.exact import ExactModel
from unit.runner.twins import CPU, SHAPE, make_twin, random_tokens

SHARED = random_tokens(28)
SMALL = {"vocab_size": SHAPE["vocab_size"], "max_model_len": SHAPE["max_position_embeddings"]}


@pytest.mark.parametrize(
    ("family", "preemption", "proof"),
    [("deepseek2", "recompute", "computed again"), ("glm4-lite", "swap", "swapped")],
)
def test_requests_among_others_have_the_logits_of_transformers(
    tmp_path: Path, family: str, preemption: str, proof: str
) -> None:
    twin = make_twin(tmp_path, family)
    world = ExactModel(twin.config, torch.float64, TorchOps(), HfTensors(tmp_path))
    prompts = [(SHARED if i % 2 else []) + random_tokens(length, seed=i) for i, length in enumerate((60, 9, 17, 31, 3))]
    requests = [make_samples(i, prompt, n=1, max_output=14)[0] for i, prompt in enumerate(prompts)]
    script = [ScriptedRequest((request,), arrives=place) for place, request in enumerate(requests)]
    result = world.among(
        script, requests, preemption=preemption, num_blocks=13, max_running=5, max_step_tokens=37, **SMALL
    )
    assert min(result.happened[each] for each in ("prompts cut", "prefixes found", proof)) > 0, result.happened
    for prompt, output in zip(prompts, result.outputs.values(), strict=True):
        expected = twin.reference_logits_in_float64([*prompt, *output.tokens]).numpy()
        assert len(output.rows) == 14
        for position, row in output.rows.items():
            np.testing.assert_allclose(row, expected[position], atol=1e-10, rtol=1e-10)


def test_keys_and_values_of_every_head_are_made_where_rows_may_differ() -> None:
    kinds = {True: [TorchOps(exact=True), *([NativeOps(1)] if available() else [])], False: [TorchOps()]}
    for is_exact, found in kinds.items():
        for ops in found:
            model = build_model(
                CONFIGS["deepseek2"], ops, DummyTensors(CONFIGS["deepseek2"]), torch.float32, CPU, 400
            )  # fmt: skip
            mixer = model.layers[0].mixer
            assert isinstance(mixer, Latent)
            assert (mixer.both is None) == is_exact
