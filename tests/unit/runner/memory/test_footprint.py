"""What a step takes, as it is reckoned, against one that is laid out and launched without a GPU."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from chairlift.config.model import uniform_model
from chairlift.core.limits import Limits
from chairlift.runner.memory import footprint
from chairlift.runner.memory.measure import largest_count

MODEL: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 4096, "num_layers": 2, "num_heads": 32, "num_kv_heads": 8,
    "head_dim": 128, "intermediate_size": 14336, "vocab_size": 8000, "max_model_len": 4096, "rms_norm_eps": 1e-5,
    "rope_theta": 1e4, "dtype": "bfloat16",
}  # fmt: skip
LIMITS: dict[str, Any] = {
    "vocab_size": 8000, "max_model_len": 4096, "block_size": 16, "num_blocks": 256, "max_running": 512,
    "max_step_tokens": 4096,
}  # fmt: skip
CASES = {
    "the MLP is widest": ({}, {}),
    "attention is widest": ({"intermediate_size": 2048, "num_kv_heads": 32}, {}),
    "parts of long contexts": ({"intermediate_size": 2048, "max_model_len": 16384}, {"max_model_len": 16384}),
    "one of three logits fits": ({"vocab_size": 100_000}, {"vocab_size": 100_000}),
    "logits fit nowhere": ({"vocab_size": 128_256}, {"vocab_size": 128_256}),
    "half as wide": ({"hidden_size": 2048, "head_dim": 64, "intermediate_size": 8192}, {"max_running": 128}),
}
WHOLE = uniform_model(**MODEL), Limits(**LIMITS)


@pytest.mark.long
def test_steps_take_what_was_reckoned() -> None:
    shapes = [(MODEL | model, LIMITS | limits) for model, limits in CASES.values()]
    paths = os.pathsep.join(sys.path)
    told = subprocess.run(
        [sys.executable, "-m", "fakes.step_footprint", json.dumps(shapes)], capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": paths},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    for name, (model, limits), (step, shared, all_) in zip(CASES, shapes, json.loads(told.stdout), strict=True):
        config, bounds = uniform_model(**model), Limits(**limits)
        reckoned = footprint.activation_bytes(config, bounds, largest_count(bounds), 2) - footprint._STEP_CODE
        assert step == pytest.approx(reckoned, rel=0.08), name
        reckoned = footprint._shared_bytes(config, bounds, 2) - footprint._GRAPH_CODE
        assert shared == pytest.approx(reckoned, rel=0.1), name
        assert all_ <= shared + (8 << 20), f"{name}: those that came later did not share its memory"


def test_logits_that_fit_nowhere_come_on_top() -> None:
    model, limits = WHOLE
    large = replace(model, vocab_size=1_000_000)
    step = footprint.step_bytes(model, limits, 4096, 2)
    assert footprint.step_bytes(large, limits, 4096, 2) == step + (3 * 1954 + 978 << 20)


def test_a_step_that_takes_half_of_the_room_is_halved() -> None:
    whole = footprint.estimate_footprint(*WHOLE, 2, room=1 << 40)
    assert whole.num_tokens == 4096
    half = footprint.estimate_footprint(*WHOLE, 2, room=2 * whole.activations - 2)
    assert half.num_tokens == 2048
    assert half.activations < whole.activations
