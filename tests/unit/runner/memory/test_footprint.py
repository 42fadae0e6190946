"""What a step takes, as it is reckoned, against one that is laid out and launched without a GPU, and against a GPU."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.limits import Limits
from chairlift.models.files.hf import load_values
from chairlift.models.spec import ModelConfig
from chairlift.runner.cuda.step import graph_key
from chairlift.runner.memory import footprint
from chairlift.runner.memory.measure import largest_count

MIB = 1 << 20
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 8000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip
LIMITS: dict[str, Any] = {
    "vocab_size": 8000, "max_model_len": 4096, "block_size": 16, "num_blocks": 256, "max_running": 512,
    "max_step_tokens": 4096,
}  # fmt: skip
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the MLP is widest": ({}, {}),
    "attention is widest": ({"intermediate_size": 2048, "num_key_value_heads": 32}, {}),
    "parts of long contexts": (
        {"intermediate_size": 2048, "max_position_embeddings": 16384}, {"max_model_len": 16384}
    ),
    "one of three logits fits": ({"vocab_size": 100_000}, {"vocab_size": 100_000}),
    "logits fit nowhere": ({"vocab_size": 128_256}, {"vocab_size": 128_256}),
    "half as wide": ({"hidden_size": 2048, "intermediate_size": 8192}, {"max_running": 128}),
    "heads wider than the residual": ({"hidden_size": 2048, "head_dim": 128}, {}),
    "all rows have samples": ({}, {"max_step_tokens": 512}),
    "without norms before": ({"architectures": ["Olmo2ForCausalLM"]}, {}),
    "norms on both sides": (
        {
            "architectures": ["Gemma2ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh", "head_dim": 128,
            "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256,
        }, {},
    ),
    "without a gate": (
        {"architectures": ["Starcoder2ForCausalLM"], "hidden_act": "gelu_pytorch_tanh", "use_bias": True}, {}
    ),
    "branches in parallel": ({"architectures": ["Cohere2ForCausalLM"], "logit_scale": 0.25}, {}),
    "experts": (
        {
            "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "num_experts": 32, "num_experts_per_tok": 8,
            "moe_intermediate_size": 768, "head_dim": 128, "num_key_value_heads": 4,
        }, {},
    ),
    "experts beside one that every token takes": (
        {
            "architectures": ["Glm4MoeForCausalLM"], "hidden_size": 2048, "n_routed_experts": 32,
            "num_experts_per_tok": 8, "moe_intermediate_size": 768, "n_shared_experts": 1, "first_k_dense_replace": 1,
            "head_dim": 128, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, "norm_topk_prob": True,
        }, {},
    ),
}  # fmt: skip
# Llama's shapes, and what their largest step and captured ones took of an H200, in MiB, with 1,024 requests, 4,096
# tokens and 320 graphs, and with 512 requests and 256 graphs what follows from what was planned and how far that was
# off (docs/results/gpu.md#memory).
MEASURED: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "7B": (
        {"num_hidden_layers": 32, "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000},
        846, 1035, 993,
    ),
    "8B": ({"num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192}, 2672, 1609, 1257),
    "1B": (
        {
            "num_hidden_layers": 16, "vocab_size": 128256, "max_position_embeddings": 8192, "hidden_size": 2048,
            "intermediate_size": 8192,
        }, 2406, 1274, 952,
    ),
}  # fmt: skip


def model_of(values: dict[str, Any]) -> ModelConfig:
    return load_values(Path("config.json"), LLAMA | values, Path())


def whole() -> tuple[ModelConfig, Limits]:
    return model_of({}), Limits(**LIMITS)


@pytest.mark.nightly
def test_steps_take_what_was_reckoned() -> None:
    shapes = [(LLAMA | model, LIMITS | limits) for model, limits in CASES.values()]
    paths = os.pathsep.join(sys.path)
    told = subprocess.run(
        [sys.executable, "-m", "fakes.step_footprint", json.dumps(shapes)], capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": paths},
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    for name, (values, limits), (step, shared, all_) in zip(CASES, shapes, json.loads(told.stdout), strict=True):
        config, bounds = model_of(values), Limits(**limits)
        reckoned = footprint.activation_bytes(config, bounds, largest_count(bounds), 2) - footprint._STEP_CODE
        assert abs(step - reckoned) <= 26 * MIB, f"{name}: more than what small tensors leave of their pieces"
        reckoned = footprint._shared_bytes(config, bounds, 2) - footprint._GRAPH_CODE
        assert shared == pytest.approx(reckoned, abs=4 * MIB), name
        assert all_ <= shared + 8 * MIB, f"{name}: those that came later did not share its memory"


@pytest.mark.parametrize("name", MEASURED)
def test_a_gpu_took_what_is_reckoned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, activations, graphs, earlier = MEASURED[name]
    config = model_of(values)
    limits = replace(
        Limits(**LIMITS), vocab_size=config.vocab_size, max_model_len=config.max_model_len, max_running=1024
    )
    found = footprint.estimate_footprint(config, limits, 2, room=100 << 30)
    assert found.num_graphs == 320
    assert found.activations / MIB == pytest.approx(activations, rel=0.01)
    assert found.graphs / MIB == pytest.approx(graphs, rel=0.01)
    monkeypatch.setattr(graph_key, "MAX_GRAPHS", 256)
    found = footprint.estimate_footprint(config, replace(limits, max_running=512), 2, room=100 << 30)
    assert found.num_graphs == 256
    assert found.graphs / MIB == pytest.approx(earlier, rel=0.01)


def test_logits_that_fit_nowhere_come_on_top() -> None:
    model, limits = whole()
    large = replace(model, vocab_size=1_000_000)
    step = footprint.step_bytes(model, limits, 4096, 2)
    # Those of 528 samples, padding included, twice those of 512, and the counts of tokens.
    assert footprint.step_bytes(large, limits, 4096, 2) == step + (2016 + 2 * 1954 + 246 << 20)


def test_a_step_that_takes_half_of_the_room_is_halved() -> None:
    model, limits = whole()
    all_of_it = footprint.estimate_footprint(model, limits, 2, room=1 << 40)
    assert all_of_it.num_tokens == 4096
    half = footprint.estimate_footprint(model, limits, 2, room=2 * all_of_it.activations - 2)
    assert half.num_tokens == 2048
    assert half.activations < all_of_it.activations
