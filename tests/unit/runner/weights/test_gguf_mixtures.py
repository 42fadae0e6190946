"""GGUF files of GLM-4.5 and GPT-OSS, written as converters write them.

Experts of a layer are in one tensor, gate and up apart; a layer that guesses further tokens is counted with the others;
MXFP4 has its scales inside.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify import dense
from chairlift.models.files.gguf.header import read_header
from chairlift.models.files.gguf.model import load_gguf
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import num_parameters
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.ops import ExpertWeight, Ops
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.quantize import kept_as, kept_bytes, pick_quantize
from chairlift.runner.weights.source import Stored, TensorSource
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, run
from unit.runner.weights.test_gguf import Kind, write
from unit.runner.weights.test_gguf_families import common, yarn
from unit.runner.weights.test_mxfp4 import quantised_twin

ARCHITECTURES = {"glm4-moe": "glm4moe", "glm4-moe-one-group": "glm4moe", "gpt-oss": "gpt-oss"}
Written = dict[str, tuple[np.ndarray, Kind]]


def facts_of(config: Any) -> dict[str, Any]:
    """As the converter writes them."""
    if config.model_type == "gpt_oss":
        return common(config) | yarn(config) | {
            "attention.sliding_window": config.sliding_window, "expert_count": config.num_local_experts,
            "expert_used_count": config.num_experts_per_tok, "expert_feed_forward_length": config.intermediate_size,
        }  # fmt: skip
    return common(config) | {
        "block_count": config.num_hidden_layers + 1, "nextn_predict_layers": 1,
        "rope.dimension_count": config.head_dim // 2, "leading_dense_block_count": config.first_k_dense_replace,
        "expert_count": config.n_routed_experts, "expert_used_count": config.num_experts_per_tok,
        "expert_group_count": config.n_group, "expert_group_used_count": config.topk_group,
        "expert_feed_forward_length": config.moe_intermediate_size, "expert_shared_count": config.n_shared_experts,
        "expert_gating_func": int(gguf.ExpertGatingFuncType.SIGMOID),
        "expert_weights_scale": config.routed_scaling_factor, "expert_weights_norm": config.norm_topk_prob,
    }  # fmt: skip


def converted(name: str, tensor: Tensor, model_type: str) -> Iterator[tuple[str, Tensor]]:
    """A tensor of the reference as converters take it apart, under names that the gguf package knows."""
    stem, _, last = name.rpartition(".")
    if last == "sinks":
        yield f"{name}.weight", tensor
    elif last == "e_score_correction_bias":
        yield f"{stem}.e_score_correction.bias", tensor
    elif stem.endswith(".experts"):
        ending = "bias" if last.endswith("_bias") else "weight"
        is_gpt = model_type == "gpt_oss"
        rows = tensor.transpose(1, 2) if is_gpt and ending == "weight" else tensor
        if last.startswith("down_proj"):
            yield f"{stem}.down_proj.{ending}", rows
        else:
            gate, up = (rows[:, ::2], rows[:, 1::2]) if is_gpt else rows.chunk(2, dim=1)
            yield from ((f"{stem}.gate_proj.{ending}", gate), (f"{stem}.up_proj.{ending}", up))
    else:
        yield name, tensor


def tensors_of(twin: Twin, architecture: str, kind: Kind = Kind.F32) -> Written:
    """kind: of matrices."""
    config, found = twin.reference.config, {}
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    for name, tensor in twin.reference.state_dict().items():
        for each, part in converted(name, tensor, config.model_type):
            stem, _, suffix = each.rpartition(".")
            own = (
                kind if part.dim() > 1 and suffix == "weight" and not stem.endswith((".gate", ".router")) else Kind.F32
            )
            data = part.contiguous().numpy()
            data = data if own is Kind.F32 else gguf.quants.quantize(data, own)
            found[f"{names.get_name(stem)}.{suffix}"] = (data, own)
    if architecture == "glm4moe":  # the layer behind, which guesses a token more
        behind, hidden = f"blk.{config.num_hidden_layers}.", config.hidden_size
        found[f"{behind}attn_norm.weight"] = (np.ones(hidden, np.float32), Kind.F32)
        found[f"{behind}nextn.eh_proj.weight"] = (np.ones((hidden, 2 * hidden), np.float32), Kind.F32)
    return found


def make_file(folder: Path, family: str, kind: Kind = Kind.F32, **changes: Any) -> tuple[Twin, Path]:
    twin, architecture = make_twin(folder / "hf", family, **changes), ARCHITECTURES[family]
    facts = facts_of(twin.reference.config)
    return twin, write(folder / "twin.gguf", tensors_of(twin, architecture, kind), architecture, facts)


def logits_of(config: ModelConfig, source: TensorSource, ops: Ops, form: WeightFormat | None = None) -> Tensor:
    decoder = build_model(config, ops, source, torch.float32, CPU, config.max_model_len, form or WeightFormat())
    kv, tokens = KvCache(config, 8, 4, torch.float32, CPU), random_tokens(20)
    return run(decoder, kv, [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))])[0]


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_a_mixture_written_as_gguf_is_the_same_model(tmp_path: Path, family: str) -> None:
    twin, path = make_file(tmp_path, family)
    header = read_header(path)
    config = load_gguf(header)
    assert (config.architecture, num_parameters(config)) == (twin.config.architecture, num_parameters(twin.config))
    expected = twin.reference_logits(random_tokens(20))[-1]
    kinds: list[Ops] = [TorchOps(), *([NativeOps(1)] if available() else [])]
    for ops in kinds:
        logits = logits_of(config, GgufTensors(header), ops)
        torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)
        of_folder = logits_of(twin.config, HfTensors(twin.folder), ops)
        torch.testing.assert_close(logits, of_folder, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16])
@pytest.mark.parametrize("family", ["glm4-moe", "gpt-oss"])
def test_matrices_in_sixteen_bits_are_those_of_the_folder_rounded(tmp_path: Path, family: str, kind: Kind) -> None:
    twin, path = make_file(tmp_path, family, kind)
    header = read_header(path)
    config = load_gguf(header)
    assert config.dtype == {Kind.F16: "float16", Kind.BF16: "bfloat16"}[kind]
    stored = torch.float16 if kind is Kind.F16 else torch.bfloat16
    with torch.no_grad():
        for name, parameter in twin.reference.named_parameters():
            if parameter.dim() > 1 and not name.endswith(("_bias", ".gate.weight", ".router.weight")):
                parameter.copy_(parameter.to(stored).float())
    expected = twin.reference_logits(random_tokens(20))[-1]
    logits = logits_of(config, GgufTensors(header), TorchOps())
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)


def test_the_layer_that_guesses_further_is_not_read_and_others_are_refused(tmp_path: Path) -> None:
    twin = make_twin(tmp_path / "hf", "glm4-moe")
    facts = facts_of(twin.reference.config)
    tensors = tensors_of(twin, "glm4moe")
    header = read_header(write(tmp_path / "m.gguf", tensors, "glm4moe", facts))
    assert (load_gguf(header).num_layers, load_gguf(header).num_further_layers) == (3, 1)
    beyond = tensors | {"blk.4.attn_norm.weight": tensors["blk.3.attn_norm.weight"]}
    header = read_header(write(tmp_path / "m.gguf", beyond, "glm4moe", facts))
    with pytest.raises(InvalidConfig, match=r"tensor blk.4.attn_norm.weight has no place in Glm4MoeForCausalLM"):
        logits_of(load_gguf(header), GgufTensors(header), TorchOps())


@pytest.mark.parametrize(("family", "change", "complaint"), [
    ("glm4-moe", {"nextn_predict_layers": 4}, "nextn_predict_layers must be below block_count 4, got 4"),
    ("glm4-moe", {"expert_gating_func": 1}, "expert_gating_func must be 2, got 1"),
    ("glm4-moe", {"expert_group_count": 3}, "expert_group_count must divide the 8 experts, got 3"),
    ("gpt-oss", {"expert_gating_func": 2}, "expert_gating_func must be 3, got 2"),
    ("gpt-oss", {"expert_used_count": 7}, "expert_used_count must be at most expert_count 6, got 7"),
])  # fmt: skip
def test_what_is_not_built_is_refused_by_name(
    tmp_path: Path, family: str, change: dict[str, Any], complaint: str
) -> None:
    twin, architecture = make_twin(tmp_path / "hf", family), ARCHITECTURES[family]
    facts = facts_of(twin.reference.config) | change
    header = read_header(write(tmp_path / "m.gguf", tensors_of(twin, architecture), architecture, facts))
    with pytest.raises(InvalidConfig, match=complaint):
        load_gguf(header)


def in_groups(blocks: Tensor, scales: Tensor) -> np.ndarray:
    """MXFP4 as GGUF files have it: a scale, then byte i of a group has columns i and 16 + i."""
    columns = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
    groups = torch.cat((scales[..., None], columns[..., :16] | columns[..., 16:] << 4), dim=-1)
    return groups.flatten(-2).contiguous().numpy()


def make_file_in_four_bits(folder: Path, kind: Kind = Kind.F32) -> tuple[Twin, Path]:
    """kind: of all matrices but the experts'."""
    twin = quantised_twin(folder / "hf")
    tensors = tensors_of(twin, "gpt-oss", kind)
    (file,) = (folder / "hf").glob("*.safetensors")
    hf = load_file(file)
    for layer in range(twin.config.num_layers):
        of_layer = f"model.layers.{layer}.mlp.experts."
        gate_up, down = (
            [hf[f"{of_layer}{name}_{each}"] for each in ("blocks", "scales")] for name in ("gate_up_proj", "down_proj")
        )
        gate, up = ([each[:, first::2] for each in gate_up] for first in (0, 1))
        for name, each in (("gate", gate), ("up", up), ("down", down)):
            tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = (in_groups(*each), Kind.MXFP4)
    return twin, write(folder / "twin.gguf", tensors, "gpt-oss", facts_of(twin.reference.config))


def test_experts_in_four_bits_give_the_logits_of_the_folder(tmp_path: Path) -> None:
    twin, path = make_file_in_four_bits(tmp_path)
    header = read_header(path)
    config = load_gguf(header)
    expected = twin.reference_logits(random_tokens(20))[-1]
    kinds: list[Ops] = [TorchOps(), *([NativeOps(1)] if available() else [])]
    for ops in kinds:
        logits = logits_of(config, GgufTensors(header), ops)
        torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-4)
        of_folder = logits_of(twin.config, HfTensors(twin.folder), ops)
        torch.testing.assert_close(logits, of_folder, atol=1e-4, rtol=1e-5)
    ((own,),) = dense.logits_of(
        config, GgufTensors(header), "float32", "cpu", [random_tokens(20)], [1], lambda *_: None
    )  # fmt: skip
    torch.testing.assert_close(torch.from_numpy(own), expected, atol=1e-3, rtol=1e-4)


class Packed(TorchOps):
    """Keeps what kernels would get."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[Tensor, ...]] = []

    @property
    def keeps_experts(self) -> dict[str, Any]:
        return {"MXFP4": self.take}

    def take(self, parts: list[Stored], bias: Tensor | None, dtype: torch.dtype) -> ExpertWeight:
        ((blocks, scales),) = (part.tensors for part in parts)
        assert bias is not None
        self.given.append((blocks.clone(), scales.clone(), bias))
        return self.expert_weight(torch.zeros(parts[0].shape), bias)


def test_kernels_get_the_same_four_bits_from_either_file(tmp_path: Path) -> None:
    twin, path = make_file_in_four_bits(tmp_path)
    header, form = read_header(path), WeightFormat(as_stored=True)
    of_folder, of_file = Packed(), Packed()
    logits_of(twin.config, HfTensors(twin.folder), of_folder, form)
    logits_of(load_gguf(header), GgufTensors(header), of_file, form)
    assert len(of_file.given) == len(of_folder.given) == 2 * twin.config.num_layers
    for expected, found in zip(of_folder.given, of_file.given, strict=True):
        for each, same in zip(expected, found, strict=True):
            assert torch.equal(each, same)


def test_a_gpu_keeps_four_bits_and_a_cpu_the_other_blocks(tmp_path: Path) -> None:
    twin, path = make_file_in_four_bits(tmp_path, Kind.Q8_0)
    config = load_gguf(read_header(path))
    kept = [pick_quantize("auto", "auto", kernels, config) for kernels in ("triton", "native", "torch")]
    assert [kept_as(config, each) for each in kept] == ["MXFP4", "Q8_0", "none"]
    assert pick_quantize("stored", "auto", "triton", config) == "mxfp4"
    wide, in_four, in_eight = (kept_bytes(config, each, 2) for each in ("none", *kept[:2]))
    folder = twin.config
    assert wide - in_four == kept_bytes(folder, "none", 2) - kept_bytes(folder, "mxfp4", 2)
    assert 0 < wide - in_eight < wide - in_four
    with pytest.raises(InvalidConfig, match=r"quantize stored: only the native kernels"):
        pick_quantize("stored", "auto", "torch", config)


@pytest.mark.skipif(not available(), reason="needs the native kernels: a C compiler when installing")
def test_a_cpu_keeps_blocks_beside_experts_in_four_bits(tmp_path: Path) -> None:
    _, path = make_file_in_four_bits(tmp_path, Kind.Q8_0)
    header = read_header(path)
    config = load_gguf(header)
    kept, wide = (
        logits_of(config, GgufTensors(header), NativeOps(1), WeightFormat(as_stored=each)) for each in (True, False)
    )
    assert torch.cosine_similarity(kept, wide, dim=0) > 0.99  # activations in 8 bits


def test_a_scale_that_no_weight_needs_is_refused(tmp_path: Path) -> None:
    _, path = make_file_in_four_bits(tmp_path)
    header = read_header(path)
    info, content = header.tensors["blk.1.ffn_down_exps.weight"], bytearray(path.read_bytes())
    content[info.offset] = 200
    path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=r"tensor blk.1.ffn_down_exps.weight has a scale above 2"):
        logits_of(load_gguf(header), GgufTensors(header), Packed(), WeightFormat(as_stored=True))
