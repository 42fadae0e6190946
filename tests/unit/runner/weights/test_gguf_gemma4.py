"""GGUF files of Gemma 4, written as converters write them.

Layers without a window have heads of another width, and where they have no values their keys are values too. The pairs
of heads that stand still are there as divisors of 1e30; gates and up projections of experts are one tensor.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify import dense
from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.tensors import num_parameters
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.hf import HfTensors
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, run
from unit.runner.weights.test_gguf import Kind, write

FAMILIES = ("gemma4-shared", "gemma4-keys-as-values", "gemma4-moe", "gemma4-unified")
OPS = [TorchOps, *([lambda: NativeOps(1)] if available() else [])]
Written = dict[str, tuple[np.ndarray, Kind]]


def facts_of(twin: Twin) -> dict[str, Any]:
    """As the converter writes them."""
    config, layers = twin.config, twin.config.layers
    specs = [layer.attention for layer in layers]
    full, local = specs[-1], specs[0]
    facts = {
        "block_count": len(layers), "context_length": config.max_model_len, "embedding_length": config.hidden_size,
        "attention.head_count": full.num_heads, "attention.head_count_kv": [spec.num_kv_heads for spec in specs],
        "feed_forward_length": [layer.feed_forward.dense_width for layer in layers],
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps, "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
        "attention.key_length": full.head_dim, "attention.value_length": full.head_dim,
        "attention.key_length_swa": local.head_dim, "attention.value_length_swa": local.head_dim,
        "attention.sliding_window": local.window,
        "attention.sliding_window_pattern": [spec.window > 0 for spec in specs],
        "attention.shared_kv_layers": sum(not spec.has_own_rows for spec in specs),
        "rope.dimension_count": full.head_dim, "rope.dimension_count_swa": local.head_dim,
        "embedding_length_per_layer_input": config.token_width,
    }  # fmt: skip
    if (experts := layers[0].feed_forward.experts) is not None:
        facts |= {"expert_count": experts.count, "expert_used_count": experts.num_chosen,
                  "expert_feed_forward_length": layers[0].feed_forward.width}  # fmt: skip
    return facts | ({"final_logit_softcapping": config.logit_cap} if config.logit_cap else {})


def tensors_of(twin: Twin, kind: Kind = Kind.F32) -> Written:
    """kind: of matrices."""
    config, found = twin.config, {}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA4, config.num_layers)
    for name, tensor in twin.reference.state_dict().items():
        stem, _, last = name.rpartition(".")
        layer = f"blk.{stem.split('.')[2]}." if stem.startswith("model.layers.") else ""
        if last == "scale":
            target = f"{layer}ffn_gate_inp.scale"
        elif last == "per_expert_scale":
            target = f"{layer}ffn_down_exps.scale"
        elif name != "lm_head.weight" and not name.endswith("embed_scale"):
            target = f"{names.get_name(stem if last == 'weight' else name)}.weight"
        else:
            continue  # tied
        own = kind if tensor.dim() > 1 and tensor.shape[-1] % 32 == 0 else Kind.F32
        data = tensor.numpy()
        found[target] = (data if own is Kind.F32 else gguf.quants.quantize(data, own), own)
    pairs = config.layers[-1].attention.head_dim // 2
    divisors = [1.0] * (pairs // 4) + [1e30] * (pairs - pairs // 4)
    return found | {"rope_freqs.weight": (np.array(divisors, np.float32), Kind.F32)}


def logits_with(decoder: Decoder, tokens: list[int]) -> Tensor:
    kv = KvCache(decoder.config, 12, 4, torch.float32, CPU)
    return run(decoder, kv, [chunk(tokens, 0, len(tokens), [3, 1, 0, 6, 2, 8, 5, 11], request(tokens))])[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gemma_4_written_as_gguf_is_the_same_model(tmp_path: Path, family: str) -> None:
    twin, tokens = make_twin(tmp_path / "hf", family), random_tokens(29)
    facts = facts_of(twin)
    header = read_header(write(tmp_path / "twin.gguf", tensors_of(twin), "gemma4", facts))
    config = load_gguf(header)
    assert (num_parameters(config), config.warnings) == (num_parameters(twin.config), ())
    expected = twin.reference_logits(tokens)[-1]
    for ops in OPS:
        decoder = build_model(config, ops(), GgufTensors(header), torch.float32, CPU, 64)
        of_folder = build_model(twin.config, ops(), HfTensors(twin.folder), torch.float32, CPU, 64)
        logits = logits_with(decoder, tokens)
        torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(logits, logits_with(of_folder, tokens), atol=1e-4, rtol=1e-4)
    ((own,),) = dense.logits_of(config, GgufTensors(header), "float32", "cpu", [tokens], [1], lambda *_: None)
    torch.testing.assert_close(torch.from_numpy(own), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", [Kind.BF16, Kind.Q8_0])
def test_matrices_of_fewer_bits_give_the_logits_of_the_rounded_model(tmp_path: Path, kind: Kind) -> None:
    changes = {"intermediate_size": 64, "hidden_size_per_layer_input": 32}
    twin, tokens = make_twin(tmp_path / "hf", "gemma4-shared", **changes), random_tokens(29)
    with torch.no_grad():
        for parameter in twin.reference.parameters():
            if parameter.dim() > 1 and parameter.shape[-1] % 32 == 0:
                stored = gguf.quants.quantize(parameter.numpy(), kind)
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(stored, kind)))
    facts = facts_of(twin)
    header = read_header(write(tmp_path / "twin.gguf", tensors_of(twin, kind), "gemma4", facts))
    config, expected = load_gguf(header), twin.reference_logits(tokens)[-1]
    for ops in OPS:
        decoder = build_model(config, ops(), GgufTensors(header), torch.float32, CPU, 64)
        torch.testing.assert_close(logits_with(decoder, tokens), expected, atol=1e-3, rtol=1e-3)
    if kind is Kind.Q8_0 and available():
        form = WeightFormat(as_stored=True)
        decoder = build_model(config, NativeOps(1), GgufTensors(header), torch.float32, CPU, 64, form)
        assert torch.cosine_similarity(logits_with(decoder, tokens), expected, dim=0) > 0.99  # activations in 8 bits


@pytest.mark.parametrize(("change", "complaint"), [
    ({"attention.shared_kv_layers": 5}, "attention.shared_kv_layers must leave a layer with window 0 keys of its own"),
    ({"attention.head_count_kv": [1] * 5}, "attention.head_count_kv must be a positive whole number, or one of each"),
    ({"attention.head_count_kv": [3] * 6}, "attention.head_count_kv must divide attention.head_count 4"),
    ({"attention.value_length_swa": 4}, "attention.value_length_swa must equal attention.key_length_swa 8, got 4"),
    ({"rope.dimension_count_swa": 4}, "rope.dimension_count_swa must equal attention.key_length_swa 8, got 4"),
    ({"attn_logit_softcapping": 5.0}, "attn_logit_softcapping is not supported in Gemma4ForCausalLM, got 5.0"),
    ({"activation_sparsity_scale": [0.5] * 6}, "activation_sparsity_scale is not supported in Gemma4ForCausalLM"),
])  # fmt: skip
def test_what_is_not_built_is_refused_by_name(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    twin = make_twin(tmp_path / "hf", "gemma4-shared")
    facts = facts_of(twin) | change
    header = read_header(write(tmp_path / "m.gguf", tensors_of(twin), "gemma4", facts))
    with pytest.raises(InvalidConfig, match=complaint):
        load_gguf(header)


def test_a_layer_with_a_window_needs_its_values(tmp_path: Path) -> None:
    twin = make_twin(tmp_path / "hf", "gemma4-keys-as-values")
    tensors = tensors_of(twin)
    del tensors["blk.0.attn_v.weight"]
    header = read_header(write(tmp_path / "m.gguf", tensors, "gemma4", facts_of(twin)))
    with pytest.raises(InvalidConfig, match=r"tensor blk.0.attn_v.weight is missing from the weights"):
        build_model(load_gguf(header), TorchOps(), GgufTensors(header), torch.float32, CPU, 64)
