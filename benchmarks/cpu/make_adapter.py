"""A LoRA adapter of random numbers for all linear layers of a model, as peft saves it.

    python benchmarks/cpu/make_adapter.py FOLDER [--model DIR] [--rank 16] [--seed 0] [--scale 0.01]

The model needs no weights; without --model it is the embedded one.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from chairlift.build import find_model
from chairlift.config.settings import Settings
from chairlift.models.adapters.adapter import as_hugging_face
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import layer_tensors


def write_adapter(folder: Path, config: ModelConfig, rank: int, seed: int = 0, scale: float = 0.01) -> int:
    """Random numbers for every matrix, of this standard deviation; its bytes."""
    folder.mkdir(parents=True)
    facts = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": "all-linear"}
    (folder / "adapter_config.json").write_text(json.dumps(facts))
    rng, config, tensors = np.random.default_rng(seed), as_hugging_face(config), {}
    for index in range(config.num_layers):
        layer = layer_tensors(config, index)
        for part in (part for matrix in layer.by_role.values() for part in matrix.parts):
            name, (height, width) = f"base_model.model.{part.name.removesuffix('.weight')}", part.shape
            tensors[f"{name}.lora_A.weight"] = rng.normal(0, scale, (rank, width)).astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = rng.normal(0, scale, (height, rank)).astype(np.float32)
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    return sum(tensor.nbytes for tensor in tensors.values())


def config_of(model: str | None) -> ModelConfig:
    """Whether there are weights or not."""
    return find_model(Settings(model=model, load_format="dummy")).config


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=0.01)
    args = parser.parse_args()
    num_bytes = write_adapter(args.folder, config_of(args.model), args.rank, args.seed, args.scale)
    print(f"{args.folder}: {num_bytes / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
