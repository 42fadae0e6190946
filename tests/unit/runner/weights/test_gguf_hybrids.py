"""GGUF files of hybrids with gated delta nets, written as converters write them.

In the architectures of Qwen3.5 value heads are tiled: those that share a key head lie `num_key_heads` apart. Norms have
their 1, but for those of delta nets; decays are there as such, not as logarithms.
"""

from collections.abc import Iterator
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
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import num_parameters
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.ops import Ops
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.source import TensorSource
from unit.runner.hybrids import States
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request
from unit.runner.weights.test_gguf import Kind, write
from unit.runner.weights.test_gguf_families import common

ARCHITECTURES = {"qwen3.5": "qwen35", "qwen3.5-moe": "qwen35moe", "qwen3-next": "qwen3next"}
# Columns that blocks of 32 fit.
EVEN = {
    "intermediate_size": 64, "linear_value_head_dim": 32, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}  # fmt: skip
OPS = [TorchOps, *([lambda: NativeOps(1)] if available() else [])]
Written = dict[str, tuple[np.ndarray, Kind]]


def facts_of(config: Any) -> dict[str, Any]:
    """As the converter writes them."""
    facts = common(config) | {
        "ssm.conv_kernel": config.linear_conv_kernel_dim, "ssm.state_size": config.linear_key_head_dim,
        "ssm.group_count": config.linear_num_key_heads, "ssm.time_step_rank": config.linear_num_value_heads,
        "ssm.inner_size": config.linear_num_value_heads * config.linear_value_head_dim,
        "attention.recurrent_layers": [kind == "linear_attention" for kind in config.layer_types] + [False],
        "full_attention_interval": 4, "rope.dimension_count": 8, "rope.dimension_sections": [2, 1, 1, 0],
        "block_count": config.num_hidden_layers + 1, "nextn_predict_layers": 1,
    }  # fmt: skip
    if config.model_type == "qwen3_5_text":
        return facts
    return facts | {
        "expert_count": config.num_experts, "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_shared_feed_forward_length": config.shared_expert_intermediate_size,
    }  # fmt: skip


def tiled(tensor: Tensor, config: Any, size: int, dim: int = 0) -> Tensor:
    """Value heads of `size` each, as files of Qwen3.5 have them."""
    groups = tensor.unflatten(dim, (config.linear_num_key_heads, -1, size))
    return groups.transpose(dim, dim + 1).flatten(dim, dim + 2)


def by_kind(rows: Tensor, config: Any) -> tuple[Tensor, Tensor]:
    """What is stored by key head: queries, keys and values of all, then gates."""
    key, values = config.linear_key_head_dim, config.linear_num_value_heads // config.linear_num_key_heads
    sizes = [key, key, *[values * config.linear_value_head_dim] * 2]
    *qkv, gates = rows.unflatten(0, (config.linear_num_key_heads, -1)).split(sizes, dim=1)
    return torch.cat([each.flatten(0, 1) for each in qkv]), gates.flatten(0, 1)


def converted(name: str, tensor: Tensor, config: Any) -> Iterator[tuple[str, Tensor]]:
    """A tensor of the reference under a name that the gguf package knows."""
    stem, _, last = name.rpartition(".")
    before, value = 2 * config.linear_num_key_heads * config.linear_key_head_dim, config.linear_value_head_dim
    if config.model_type.startswith("qwen3_5"):
        if stem.endswith(("in_proj_qkv", "conv1d")):
            tensor = torch.cat((tensor[:before], tiled(tensor[before:], config, value)))
        elif stem.endswith("in_proj_z"):
            tensor = tiled(tensor, config, value)
        elif stem.endswith(("in_proj_a", "in_proj_b")) or last in ("A_log", "dt_bias"):
            tensor = tiled(tensor, config, 1)
        elif stem.endswith("out_proj"):
            tensor = tiled(tensor, config, value, dim=1)
    if last == "A_log":
        yield name, -tensor.exp()
    elif last == "dt_bias":
        yield f"{stem}.dt_proj.bias", tensor
    elif stem.endswith("in_proj_qkvz"):
        qkv, gates = by_kind(tensor, config)
        yield from ((f"{stem}.attn_qkv", qkv), (f"{stem}.attn_gate", gates))
    elif stem.endswith("mlp.experts"):
        if last == "down_proj":
            yield f"{name}.weight", tensor
        else:
            yield from ((f"{stem}.{part}_proj.weight", tensor.chunk(2, 1)[i]) for i, part in enumerate(("gate", "up")))
    elif stem.endswith("norm") and not stem.endswith("linear_attn.norm"):
        yield name, tensor + 1.0
    else:
        yield name, tensor.squeeze(1) if stem.endswith("conv1d") else tensor


def is_large(name: str, shape: tuple[int, ...]) -> bool:
    """Of a matrix: converters write it in the type that the file is named for."""
    return len(shape) > 1 and shape[-1] % 32 == 0 and not name.endswith(("gate.weight", "inp.weight", "shexp.weight"))


def tensors_of(twin: Twin, architecture: str, kind: Kind = Kind.F32) -> Written:
    """kind: of large matrices."""
    config, found = twin.reference.config, {}
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, tensor in twin.reference.state_dict().items():
        for each, part in converted(name, tensor, config):
            stem, _, suffix = each.rpartition(".")
            if stem.endswith("in_proj_qkvz"):
                target = f"blk.{stem.split('.')[2]}.{suffix}.weight"
            elif suffix == "A_log":
                target = names.get_name(each)
            else:
                target = f"{names.get_name(stem)}.{suffix}"
            data, own = part.contiguous().numpy(), kind if is_large(target, part.shape) else Kind.F32
            found[target] = (data if own is Kind.F32 else gguf.quants.quantize(data, own), own)
    behind, hidden = f"blk.{config.num_hidden_layers}.", config.hidden_size
    found[f"{behind}nextn.eh_proj.weight"] = (np.ones((hidden, 2 * hidden), np.float32), Kind.F32)
    return found


def make_file(folder: Path, family: str, kind: Kind = Kind.F32, **changes: Any) -> tuple[Twin, Path]:
    twin, architecture = make_twin(folder / "hf", family, **changes), ARCHITECTURES[family]
    facts = facts_of(twin.reference.config)
    return twin, write(folder / "twin.gguf", tensors_of(twin, architecture, kind), architecture, facts)


def logits_of(config: ModelConfig, source: TensorSource, ops: Ops, form: WeightFormat | None = None) -> Tensor:
    """Of a prompt in two pieces that tiles do not fit."""
    decoder = build_model(config, ops, source, torch.float32, CPU, config.max_model_len, form or WeightFormat())
    states, tokens = States(decoder, 8), random_tokens(29)
    for start, count in ((0, 11), (11, 18)):
        logits = states.run([chunk(tokens, start, count, [3, 1, 0, 6], request(tokens))])
    return logits[-1]


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_a_hybrid_written_as_gguf_is_the_same_model(tmp_path: Path, family: str) -> None:
    twin, path = make_file(tmp_path, family)
    header = read_header(path)
    config = load_gguf(header)
    assert (config.architecture, num_parameters(config)) == (twin.config.architecture, num_parameters(twin.config))
    assert config.warnings == ()
    expected = twin.reference_logits(random_tokens(29))[-1]
    for ops in OPS:
        logits = logits_of(config, GgufTensors(header), ops())
        torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(logits, logits_of(twin.config, HfTensors(twin.folder), ops()), atol=1e-4, rtol=1e-4)
    tensors, tokens = GgufTensors(header), random_tokens(29)
    ((own,),) = dense.logits_of(config, tensors, "float32", "cpu", [tokens], [1], lambda *_: None)
    torch.testing.assert_close(torch.from_numpy(own), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", [Kind.BF16, Kind.Q8_0])
def test_matrices_of_fewer_bits_give_the_logits_of_the_rounded_model(tmp_path: Path, kind: Kind) -> None:
    twin = make_twin(tmp_path / "hf", "qwen3.5-moe", **EVEN)
    with torch.no_grad():
        for name, parameter in twin.reference.named_parameters():
            if is_large(name, parameter.shape):
                stored = gguf.quants.quantize(parameter.numpy(), kind)
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(stored, kind)))
    facts = facts_of(twin.reference.config)
    header = read_header(write(tmp_path / "twin.gguf", tensors_of(twin, "qwen35moe", kind), "qwen35moe", facts))
    expected, config = twin.reference_logits(random_tokens(29))[-1], load_gguf(header)
    for ops in OPS:
        logits = logits_of(config, GgufTensors(header), ops())
        torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)
    if kind is Kind.Q8_0 and available():
        logits = logits_of(config, GgufTensors(header), NativeOps(1), WeightFormat(as_stored=True))
        assert torch.cosine_similarity(logits, expected, dim=0) > 0.99  # activations in 8 bits


def test_older_files_have_all_rows_by_key_head(tmp_path: Path) -> None:
    twin, path = make_file(tmp_path, "qwen3-next")
    tensors = tensors_of(twin, "qwen3next")
    for name, tensor in twin.reference.state_dict().items():
        if name.endswith("in_proj_qkvz.weight"):
            layer = f"blk.{name.split('.')[2]}."
            del tensors[f"{layer}attn_qkv.weight"], tensors[f"{layer}attn_gate.weight"]
            tensors[f"{layer}ssm_in.weight"] = (tensor.numpy(), Kind.F32)
    older = write(tmp_path / "older.gguf", tensors, "qwen3next", facts_of(twin.reference.config))
    found = [
        logits_of(load_gguf(read_header(each)), GgufTensors(read_header(each)), TorchOps()) for each in (path, older)
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize(("change", "complaint"), [
    ({"ssm.time_step_rank": 3}, "ssm.time_step_rank must be a multiple of ssm.group_count 2, got 3"),
    ({"ssm.inner_size": 50}, "ssm.inner_size must be a multiple of ssm.time_step_rank 4, got 50"),
    ({"ssm.inner_size": 64}, r"blk.0.ssm_conv1d.weight has shape \[80, 4\], the configuration says \[96, 1, 4\]"),
    ({"nextn_predict_layers": 6}, "nextn_predict_layers must be below block_count 6, got 6"),
    ({"attention.recurrent_layers": [True] * 3}, "attention.recurrent_layers must say of each of the 6 layers"),
    ({"attention.scale": 0.5}, "attention.scale is not supported in Qwen3_5ForCausalLM, got 0.5"),
    ({"ssm.dt_b_c_rms": True}, "ssm.dt_b_c_rms is not supported in Qwen3_5ForCausalLM, got True"),
])  # fmt: skip
def test_what_is_not_built_is_refused_by_name(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    twin = make_twin(tmp_path / "hf", "qwen3.5")
    facts = facts_of(twin.reference.config) | change
    header = read_header(write(tmp_path / "m.gguf", tensors_of(twin, "qwen35"), "qwen35", facts))
    with pytest.raises(InvalidConfig, match=complaint):
        logits_of(load_gguf(header), GgufTensors(header), TorchOps())
