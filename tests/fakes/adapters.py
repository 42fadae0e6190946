"""Adapters of the tiny model as folders that peft would save: random numbers, large enough to change every answer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from fakes.tiny_model import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, MLP

SHAPES = {
    "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
    "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
    "mlp.gate_proj": (MLP, HIDDEN),
    "mlp.up_proj": (MLP, HIDDEN),
    "mlp.down_proj": (HIDDEN, MLP),
}


def write_adapter(
    folder: Path, seed: int = 1, rank: int = 4, modules: tuple[str, ...] = tuple(SHAPES), **config: Any
) -> Path:
    """`config` replaces entries of adapter_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": 2 * rank, "bias": "none",
        "target_modules": sorted({module.rpartition(".")[2] for module in modules}), "inference_mode": True,
    } | config  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(facts))
    save_file(adapter_tensors(seed, rank, modules), str(folder / "adapter_model.safetensors"))
    return folder


def adapter_tensors(seed: int, rank: int, modules: tuple[str, ...] = tuple(SHAPES)) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
        for module in modules:
            height, width = SHAPES[module]
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = rng.normal(0, 0.2, (rank, width)).astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = rng.normal(0, 0.2, (height, rank)).astype(np.float32)
    return tensors
