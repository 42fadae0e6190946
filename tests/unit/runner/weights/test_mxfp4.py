"""Experts of four bits: a GPT-OSS folder with blocks and scales against transformers with the numbers meant."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify import dense
from chairlift.models.files.hf import load_hf
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import expected_parts, num_parameters
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.mxfp4 import in_halves, widened
from chairlift.runner.weights.quantize import kept_bytes, pick_quantize
from unit.runner.twins import CPU, Twin, chunk, make_twin, random_tokens, request, run

QUANTISED = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}


def quantised_twin(folder: Path) -> Twin:
    twin = make_twin(folder, "gpt-oss", hidden_size=64, intermediate_size=32)
    source = torch.Generator().manual_seed(3)
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    state = dict(twin.reference.named_parameters())
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        count, columns, rows = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (count, rows, columns // 32, 16), generator=source, dtype=torch.uint8)
        scales = torch.randint(122, 126, (count, rows, columns // 32), generator=source, dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        with torch.no_grad():
            state[name].copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
    save_file(tensors, file)
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": QUANTISED}
    (folder / "config.json").write_text(json.dumps(config))
    return Twin(folder, twin.reference, load_hf(folder))


def test_blocks_and_scales_give_the_logits_of_what_they_stand_for(tmp_path: Path) -> None:
    twin = quantised_twin(tmp_path)
    tokens = random_tokens(20)
    expected = twin.reference_logits(tokens)
    kv = KvCache(twin.config, 8, 4, torch.float32, CPU)
    logits = run(twin.decoder(), kv, [chunk(tokens, 0, 20, [3, 1, 0, 6, 2], request(tokens))])
    torch.testing.assert_close(logits[0], expected[-1], atol=1e-3, rtol=1e-4)
    ((own,),) = dense.logits_of(twin.config, HfTensors(tmp_path), "float32", "cpu", [tokens], [1], lambda *_: None)
    torch.testing.assert_close(torch.from_numpy(own), expected[-1], atol=1e-3, rtol=1e-4)


def test_kernels_get_the_same_columns_in_another_order() -> None:
    blocks = torch.randint(0, 256, (3, 2, 16), dtype=torch.uint8)
    stored = widened(blocks, torch.full((3, 2), 127, dtype=torch.uint8)).unflatten(-1, (2, 32))
    packed = in_halves(blocks).unflatten(-1, (2, 16))
    again = torch.stack((packed & 15, packed >> 4), dim=-1)  # columns i and 16 + i
    wide = widened(again[..., 0] | again[..., 1] << 4, torch.full((3, 2), 127, dtype=torch.uint8))
    pairs = wide.unflatten(-1, (2, 16, 2))
    assert torch.equal(torch.cat((pairs[..., 0], pairs[..., 1]), dim=-1), stored)


def test_weights_are_counted_as_weights_and_their_memory_as_it_is_kept(tmp_path: Path) -> None:
    twin = quantised_twin(tmp_path)
    assert num_parameters(twin.config) == sum(parameter.numel() for parameter in twin.reference.parameters())
    assert pick_quantize("auto", "bfloat16", "triton", twin.config) == "mxfp4"
    assert pick_quantize("auto", "auto", "native", twin.config) == "none"
    wide, kept = (kept_bytes(twin.config, quantize, 2) for quantize in ("none", "mxfp4"))
    experts = sum(part.num_weights for part in expected_parts(twin.config) if len(part.shape) == 3)
    assert wide - kept == round(experts * (2 - 17 / 32))
    with pytest.raises(InvalidConfig, match=r"quantize stored: only the triton kernels"):
        pick_quantize("stored", "auto", "native", twin.config)


def test_random_weights_of_four_bits_are_made_too(tmp_path: Path) -> None:
    config = quantised_twin(tmp_path).config
    decoder = build_model(config, TorchOps(), DummyTensors(config), torch.float32, CPU, 64)
    kv, tokens = KvCache(config, 8, 4, torch.float32, CPU), random_tokens(9)
    assert run(decoder, kv, [chunk(tokens, 0, 9, [3, 1, 0], request(tokens))]).isfinite().all()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"intermediate_size": 40}, "intermediate_size must be a multiple of 32 for mxfp4, got 40"),
        ({"quantization_config": {"quant_method": "quark"}}, r"quantization_config \(quark\) is not supported"),
        ({"swiglu_limit": 5.0}, "swiglu_limit must be 7, got 5.0"),
        ({"num_experts_per_tok": 7}, "num_experts_per_tok must be at most num_local_experts 6, got 7"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    quantised_twin(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(InvalidConfig, match=complaint):
        load_hf(tmp_path)


def test_a_scale_that_no_weight_needs_and_floats_in_place_of_bytes_are_refused(tmp_path: Path) -> None:
    twin = quantised_twin(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    tensors, name = load_file(file), "model.layers.1.mlp.experts.down_proj_scales"
    for wrong, complaint in (
        (torch.full_like(tensors[name], 200), f"tensor {name} has a scale above 2"),
        (tensors[name].float(), f"tensor {name} is stored as float32, which is not supported"),
    ):
        save_file(tensors | {name: wrong}, file)
        with pytest.raises(InvalidConfig, match=complaint):
            built(twin.config, tmp_path)


def built(config: ModelConfig, folder: Path) -> None:
    build_model(config, TorchOps(), HfTensors(folder), torch.float32, CPU, 64)
