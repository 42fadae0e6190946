"""What a step takes, as it is reckoned, against a step that is laid out and launched without a GPU."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from chairlift.config.model import ModelConfig
from chairlift.core.limits import Limits
from chairlift.runner import footprint
from chairlift.runner.cuda import sampling
from chairlift.runner.measure import largest_count

MODEL: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 1024, "num_layers": 1, "num_heads": 16, "num_kv_heads": 4,
    "head_dim": 64, "intermediate_size": 2816, "vocab_size": 8000, "max_model_len": 4096, "rms_norm_eps": 1e-5,
    "rope_theta": 1e4, "dtype": "bfloat16",
}  # fmt: skip
LIMITS: dict[str, Any] = {
    "vocab_size": 8000, "max_model_len": 4096, "block_size": 16, "num_blocks": 256, "max_running": 64,
    "max_step_tokens": 2048,
}  # fmt: skip
CASES = {
    "the MLP is widest": ({}, {}),
    "attention is widest": ({"intermediate_size": 512, "num_kv_heads": 16}, {}),
    "parts of long contexts": ({"intermediate_size": 512, "vocab_size": 999}, {"max_running": 2000, "vocab_size": 999}),
    "logits fit into what was freed": ({"vocab_size": 80_000}, {"vocab_size": 80_000}),
}
WHOLE = ModelConfig(**MODEL), Limits(**LIMITS)


@pytest.mark.slow
def test_a_step_takes_what_was_reckoned() -> None:
    shapes = [(MODEL | model, LIMITS | limits) for model, limits in CASES.values()]
    paths = os.pathsep.join(sys.path)
    told = subprocess.run(
        [sys.executable, "-m", "fakes.rehearsed", json.dumps(shapes)], capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": paths},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    for name, (model, limits), peak in zip(CASES, shapes, json.loads(told.stdout), strict=True):
        config, bounds = ModelConfig(**model), Limits(**limits)
        reckoned = footprint.step_bytes(config, bounds, largest_count(bounds), 2)
        reckoned += 4 * (2 * bounds.max_running + 16) * 256  # tables, which the step writes to
        # Counts of tokens said before are made on first use, and kept.
        reckoned += 4 * footprint._MAX_PENALISED * config.vocab_size * ("logits" in name)
        assert peak == pytest.approx(reckoned, rel=0.04), name


def test_what_is_reckoned_with_is_what_the_runner_has() -> None:
    assert sampling._MAX_PENALISED == footprint._MAX_PENALISED


def test_logits_that_fit_nowhere_come_on_top() -> None:
    model, limits = WHOLE
    large = replace(model, vocab_size=1_000_000)
    step = footprint.step_bytes(model, limits, 2048, 2)
    assert footprint.step_bytes(large, limits, 2048, 2) == step + 3 * 64 * 4_000_000


def test_a_step_that_takes_half_of_the_room_is_halved() -> None:
    whole = footprint.reckon(*WHOLE, 2, room=1 << 40)
    assert whole.num_tokens == 2048
    half = footprint.reckon(*WHOLE, 2, room=2 * whole.activations - 2)
    assert half.num_tokens == 1024
    assert half.activations < whole.activations
