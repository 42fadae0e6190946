"""Experts in one tensor, wrapped names and layers that guess: a published folder gives the model that it is."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from chairlift.models.files.hf import load_hf
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from unit.runner.hybrids import States
from unit.runner.twins import CPU, chunk, make_twin, random_tokens, request


def as_published(folder: Path, num_experts: int) -> None:
    """As the hub has models of text and images."""
    (path,) = folder.glob("*.safetensors")
    tensors, found = load_file(path), {}
    for name, tensor in tensors.items():
        if ".experts." not in name:
            found[name.replace("model.", "model.language_model.", 1)] = tensor
    for layer in {name.split(".")[2] for name in tensors if ".experts." in name}:
        own, to = f"model.layers.{layer}.mlp.experts", f"model.language_model.layers.{layer}.mlp.experts"
        each = range(num_experts)
        found[f"{to}.gate_up_proj"] = torch.stack([
            torch.cat([tensors[f"{own}.{x}.{kind}_proj.weight"] for kind in ("gate", "up")]) for x in each
        ])  # fmt: skip
        found[f"{to}.down_proj"] = torch.stack([tensors[f"{own}.{x}.down_proj.weight"] for x in each])
    found |= {"mtp.fc.weight": torch.ones(2, 2), "model.visual.patch.weight": torch.ones(2, 2)}
    save_file(found, path)
    text = json.loads((folder / "config.json").read_text())
    wrapper = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": text, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(wrapper))


def test_a_published_folder_gives_the_logits_of_the_twin(tmp_path: Path) -> None:
    twin, tokens = make_twin(tmp_path, "qwen3.5-moe"), random_tokens(20)
    wanted = twin.reference_logits_in_float64(tokens)[-1]
    as_published(tmp_path, 5)
    config = load_hf(tmp_path)
    decoder = build_model(config, TorchOps(), HfTensors(tmp_path), torch.float64, CPU, config.max_model_len)
    (found,) = States(decoder, 8).run([chunk(tokens, 0, 20, list(range(3)), request(tokens))])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)
