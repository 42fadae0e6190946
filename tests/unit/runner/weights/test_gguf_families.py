"""A GGUF file of each family, written as converters write it, is the model that transformers has."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.ops import Ops
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.gguf import GgufTensors
from unit.runner.twins import CPU, PHI_LONGROPE, Twin, chunk, make_twin, random_tokens, request, run
from unit.runner.weights.test_gguf import Kind, paired, write

Facts = Callable[[Any], dict[str, Any]]  # from a configuration of transformers


@dataclass(frozen=True)
class Written:
    architecture: str
    facts: Facts = lambda config: {}  # beside those of every file
    is_paired: bool = False  # converters put rows of queries and keys into pairs
    tensors: dict[str, list[float]] = field(default_factory=dict)
    splits: tuple[str, ...] = ()  # stacked matrices that are written as gate and up


def _granite(config: Any) -> dict[str, Any]:
    return {
        "attention.scale": config.attention_multiplier, "embedding_scale": config.embedding_multiplier,
        "residual_scale": config.residual_multiplier, "logit_scale": config.logits_scaling,
        "rope.scaling.finetuned": getattr(config, "position_embedding_type", "rope") == "rope",
    }  # fmt: skip


def _longrope(config: Any) -> dict[str, Any]:
    original = config.original_max_position_embeddings
    scale = config.max_position_embeddings / original
    return {
        "rope.dimension_count": 6, "rope.scaling.original_context_length": original,
        "rope.scaling.attn_factor": float(np.sqrt(1 + np.log(scale) / np.log(original))) if scale > 1 else 1.0,
        "attention.sliding_window": config.sliding_window or 0,
    }  # fmt: skip


def yarn(config: Any) -> dict[str, Any]:
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    return {
        "rope.scaling.type": "yarn", "rope.scaling.factor": rope["factor"],
        "rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        "rope.scaling.yarn_beta_fast": rope["beta_fast"], "rope.scaling.yarn_beta_slow": rope["beta_slow"],
    }  # fmt: skip


def _ministral3(config: Any) -> dict[str, Any]:
    rope = config.rope_parameters
    return yarn(config) | {
        "rope.scaling.yarn_log_multiplier": rope["mscale_all_dim"],
        "attention.temperature_scale": rope["llama_4_scaling_beta"],
    }


def _windows(config: Any) -> dict[str, Any]:
    return {
        "attention.sliding_window": config.sliding_window,
        "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in config.layer_types],
    }


_ROPE = PHI_LONGROPE["rope_parameters"]
_FACTORS = {"rope_factors_short.weight": _ROPE["short_factor"], "rope_factors_long.weight": _ROPE["long_factor"]}
_SHARED = ("shared_mlp.input_linear",)
FILES = {
    "phi3": Written("phi3"),
    "phi3-short": Written("phi3", _longrope, tensors=_FACTORS),
    "phi3-long": Written("phi3", _longrope, tensors=_FACTORS),
    "granite": Written("granite", _granite, is_paired=True),
    "granite4-nope": Written("granite", _granite, is_paired=True, splits=_SHARED),
    "granite4-rope": Written("granite", _granite, is_paired=True, splits=_SHARED),
    "smollm3-by-four": Written("smollm3", is_paired=True),
    "glm4": Written("glm4", lambda config: {"rope.dimension_count": 8}),
    "olmo2": Written("olmo2"),
    "olmo3": Written("olmo2", lambda config: yarn(config) | _windows(config) | {"rope.freq_base_swa": 1e4}),
    "exaone4": Written("exaone4", _windows),
    "exaone4-full": Written("exaone4"),
    "seed-oss": Written("seed_oss"),
    "seed-oss-biases": Written("seed_oss"),
    "ministral3": Written("mistral3", _ministral3, is_paired=True),
    "cohere2": Written("cohere2", lambda config: {"logit_scale": config.logit_scale, "attention.sliding_window": 9}),
    "starcoder2": Written("starcoder2", lambda config: {"attention.sliding_window": config.sliding_window}),
    "starcoder2-plain": Written("starcoder2"),
}


def common(config: Any) -> dict[str, Any]:
    heads = config.num_attention_heads
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    inner = getattr(config, "shared_intermediate_size", config.intermediate_size)
    facts = {
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "feed_forward_length": inner, "attention.head_count": heads,
        "attention.head_count_kv": config.num_key_value_heads, "rope.freq_base": float(rope["rope_theta"]),
    }  # fmt: skip
    if (head_dim := getattr(config, "head_dim", None)) is not None:
        facts |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    for key, ours in (("rms_norm_eps", "layer_norm_rms_epsilon"), ("layer_norm_eps", "layer_norm_epsilon"),
                      ("norm_epsilon", "layer_norm_epsilon")):  # fmt: skip
        if hasattr(config, key):
            facts[f"attention.{ours}"] = getattr(config, key)
    return facts


def tensors_of(twin: Twin, written: Written) -> dict[str, np.ndarray]:
    """Named as the gguf package names them."""
    config, found = twin.reference.config, {}
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == written.architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, tensor in twin.reference.state_dict().items():
        stem, suffix = name.rsplit(".", 1)
        if stem == "lm_head" and twin.config.is_tied:
            continue
        if written.is_paired and stem.endswith(("q_proj", "k_proj")):
            tensor = paired(tensor, config.num_attention_heads if "q_proj" in stem else config.num_key_value_heads)
        if stem.endswith(written.splits or "-"):
            for part, rows in zip(("gate", "up"), tensor.chunk(2), strict=True):
                found[f"blk.{stem.split('.')[2]}.ffn_{part}.{suffix}"] = rows.numpy()
            continue
        if stem.endswith("shared_mlp.output_linear"):
            stem = f"model.layers.{stem.split('.')[2]}.mlp.down_proj"
        found[f"{names.get_name(stem)}.{suffix}"] = tensor.numpy()
    return found | {name: np.array(values, np.float32) for name, values in written.tensors.items()}


def make_file(folder: Path, family: str, **changes: Any) -> tuple[Twin, Path]:
    written = FILES[family]
    twin = make_twin(folder / "hf", family, **changes)
    config = twin.reference.config
    tensors = {name: (data, Kind.F32) for name, data in tensors_of(twin, written).items()}
    facts = common(config) | written.facts(config)
    return twin, write(folder / "twin.gguf", tensors, written.architecture, facts)


@pytest.mark.parametrize("family", FILES)
def test_a_file_of_each_family_is_the_model_of_transformers(tmp_path: Path, family: str) -> None:
    twin, path = make_file(tmp_path, family)
    header = read_header(path)
    config = load_gguf(header)
    tokens = random_tokens(20)
    expected = twin.reference_logits(tokens)[-1]
    kinds: list[Ops] = [TorchOps(), *([NativeOps(1)] if available() else [])]
    for ops in kinds:
        decoder = build_model(config, ops, GgufTensors(header), torch.float32, CPU, config.max_model_len)
        kv = KvCache(config, 8, 4, torch.float32, CPU)
        logits = run(decoder, kv, [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))])
        torch.testing.assert_close(logits[0], expected, atol=1e-3, rtol=1e-3)


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
@pytest.mark.parametrize("family", ["phi3-long", "glm4"])
def test_blocks_of_a_file_are_put_into_order_too(tmp_path: Path, family: str) -> None:
    """Rows of stacked matrices and of parts of heads."""
    twin, path = make_file(tmp_path, family, hidden_size=64, **({} if family == "glm4" else {"num_attention_heads": 8}))
    tensors = tensors_of(twin, FILES[family])
    kept = {
        name: (gguf.quants.quantize(data, Kind.Q8_0), Kind.Q8_0)
        if data.ndim == 2 and data.shape[1] % 32 == 0 else (data, Kind.F32)
        for name, data in tensors.items()
    }  # fmt: skip
    config = twin.reference.config
    header = read_header(write(path, kept, FILES[family].architecture, common(config) | FILES[family].facts(config)))
    declared, tokens = load_gguf(header), random_tokens(20)
    logits = []
    for stored in (True, False):
        form = WeightFormat(as_stored=stored)
        decoder = build_model(declared, NativeOps(1), GgufTensors(header), torch.float32, CPU, 64, form)
        kv = KvCache(declared, 8, 4, torch.float32, CPU)
        logits.append(run(decoder, kv, [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))])[0])
    assert torch.cosine_similarity(*logits, dim=0) > 0.999


@pytest.mark.parametrize(("name", "complaint"), [
    ("rope_factors_short.weight", "rope_factors_short.weight must be 3 values of F32"),
    ("blk.1.attn_qkv.weight", "tensor blk.1.attn_qkv.weight is missing from the weights"),
])  # fmt: skip
def test_a_missing_tensor_is_named(tmp_path: Path, name: str, complaint: str) -> None:
    twin, path = make_file(tmp_path, "phi3-long")
    written, config = FILES["phi3-long"], twin.reference.config
    tensors = {key: (data, Kind.F32) for key, data in tensors_of(twin, written).items() if key != name}
    header = read_header(write(path, tensors, "phi3", common(config) | written.facts(config)))
    with pytest.raises(InvalidConfig, match=complaint):
        build_model(load_gguf(header), TorchOps(), GgufTensors(header), torch.float32, CPU, 64)
