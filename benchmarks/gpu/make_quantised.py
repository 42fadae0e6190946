"""Random weights of a known shape, packed as the formats of quantised safetensors have them.

    python benchmarks/gpu/make_quantised.py FOLDER [--model llama3-8b] [--format awq ...]

Numbers are drawn packed, on a GPU where there is one: 8 billion take seconds. `chairlift serve FOLDER/FORMAT` takes it,
with a made-up tokenizer. Files that are there are replaced.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from make_models import MODELS, write_model
from safetensors.torch import save_file
from torch import Tensor

Tensors = dict[str, Tensor]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
STD = 0.02  # of the numbers
GROUP, BLOCK, HALVES = 128, 128, 64  # columns that share a scale; of fp8's blocks; of a table's
NF4 = (-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626,
       0.723, 1.0)  # fmt: skip


def bits(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """Any."""
    itemsize = torch.empty((), dtype=dtype).itemsize
    drawn = torch.randint(0, 256, (*shape[:-1], shape[-1] * itemsize), dtype=torch.uint8, device=DEVICE)
    return drawn.view(dtype)


def around(scale: float, *shape: int) -> Tensor:
    return (torch.rand(shape, device=DEVICE) + 0.5) * scale


def awq(rows: int, columns: int) -> Tensors:
    """Numbers of 0 to 15 less zeros of the same: 6.5 is their spread."""
    groups = columns // GROUP
    scales = around(STD / 6.5, groups, rows).half()
    return {"qweight": bits(columns, rows // 8), "qzeros": bits(groups, rows // 8), "scales": scales}


def gptq(rows: int, columns: int) -> Tensors:
    groups = columns // GROUP
    order = torch.arange(columns, dtype=torch.int32) // GROUP
    tensors = {"qweight": bits(columns // 8, rows), "qzeros": bits(groups, rows // 8), "g_idx": order}
    return tensors | {"scales": around(STD / 6.5, groups, rows).half()}


def gptq_in_order(rows: int, columns: int) -> Tensors:
    """As with `desc_act`: columns of a group are anywhere."""
    tensors = gptq(rows, columns)
    return tensors | {"g_idx": tensors["g_idx"][torch.randperm(columns)]}


def w4a16(rows: int, columns: int) -> Tensors:
    scales = around(STD / 4.6, rows, columns // GROUP).bfloat16()
    shape = torch.tensor([rows, columns])
    return {"weight_packed": bits(rows, columns // 8), "weight_scale": scales, "weight_shape": shape}


def w8a8(rows: int, columns: int) -> Tensors:
    return {
        "weight": bits(rows, columns, dtype=torch.int8), "weight_scale": around(STD / 74, rows, 1).bfloat16()
    }  # fmt: skip


def in_e4m3(rows: int, columns: int) -> Tensor:
    return (torch.randn(rows, columns, device=DEVICE) * 64).clamp(-448, 448).to(torch.float8_e4m3fn)


def fp8_blocks(rows: int, columns: int) -> Tensors:
    scales = around(STD / 64, -(-rows // BLOCK), columns // BLOCK)
    return {"weight": in_e4m3(rows, columns), "weight_scale_inv": scales}


def fp8_rows(rows: int, columns: int) -> Tensors:
    return {"weight": in_e4m3(rows, columns), "weight_scale": around(STD / 64, rows, 1).bfloat16()}


def nvfp4(rows: int, columns: int) -> Tensors:
    scales = around(256.0, rows, columns // 16).to(torch.float8_e4m3fn)
    factor = torch.tensor([256.0 * 3 / STD])
    return {"weight_packed": bits(rows, columns // 2, dtype=torch.uint8), "weight_scale": scales,
            "weight_global_scale": factor}  # fmt: skip


def mxfp4(rows: int, columns: int) -> Tensors:
    powers = torch.randint(118, 121, (rows, columns // 32), dtype=torch.uint8, device=DEVICE)
    return {"weight_packed": bits(rows, columns // 2, dtype=torch.uint8), "weight_scale": powers}


def nf4(rows: int, columns: int) -> Tensors:
    state = {"quant_type": "nf4", "blocksize": HALVES, "dtype": "bfloat16", "shape": [rows, columns]}
    return {
        "weight": bits(rows * columns // 2, 1, dtype=torch.uint8),
        "weight.absmax": around(STD / 0.55, rows * columns // HALVES),
        "weight.quant_map": torch.tensor(NF4),
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8),
    }  # fmt: skip


def int8(rows: int, columns: int) -> Tensors:
    tensors = {"weight": bits(rows, columns, dtype=torch.int8), "SCB": around(STD * 127 / 74, rows)}
    return tensors | {"weight_format": torch.tensor(0, dtype=torch.uint8)}


def of_ct(form: str, kind: str, num_bits: int, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": num_bits, "type": kind, "symmetric": True} | more
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "format": form}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False}
FORMATS: dict[str, tuple[Callable[[int, int], Tensors], dict[str, Any]]] = {
    "fp8-blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}),
    "fp8-rows": (fp8_rows, of_ct("float-quantized", "float", 8, strategy="channel")),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}),
    "gptq": (gptq, _GPTQ | {"desc_act": False}),
    "gptq-order": (gptq_in_order, _GPTQ | {"desc_act": True}),
    "w4a16": (w4a16, of_ct("pack-quantized", "int", 4, strategy="group", group_size=GROUP)),
    "w8a8": (w8a8, of_ct("int-quantized", "int", 8, strategy="channel")),
    "nvfp4": (nvfp4, of_ct("nvfp4-pack-quantized", "float", 4, strategy="tensor_group", group_size=16)),
    "mxfp4": (mxfp4, of_ct("mxfp4-pack-quantized", "float", 4, strategy="group", group_size=32)),
    "nf4": (nf4, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}),
    "int8": (int8, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
}  # fmt: skip


def matrices(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Of a layer."""
    hidden, head = (
        config["hidden_size"],
        config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
    )
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    found = {
        "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
    }  # fmt: skip
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    names = [f"mlp.experts.{index}" for index in range(config.get("num_experts", 0))] or ["mlp"]
    for name in names:
        found |= {f"{name}.gate_proj": (inner, hidden), f"{name}.up_proj": (inner, hidden)}
        found[f"{name}.down_proj"] = (hidden, inner)
    return found


def files(config: dict[str, Any], pack: Callable[[int, int], Tensors]) -> Iterator[Tensors]:
    """One for the ends, then one a layer."""
    hidden, ends = config["hidden_size"], (config["vocab_size"], config["hidden_size"])
    own = {"model.embed_tokens.weight": torch.randn(ends, device=DEVICE).bfloat16() * STD}
    if not config.get("tie_word_embeddings"):
        own["lm_head.weight"] = torch.randn(ends, device=DEVICE).bfloat16() * STD
    yield own | {"model.norm.weight": torch.ones(hidden)}
    for layer in range(config["num_hidden_layers"]):
        found: Tensors = {}
        for name, shape in matrices(config).items():
            found |= {f"{name}.{role}": tensor for role, tensor in pack(*shape).items()}
        norms = ["input_layernorm", "post_attention_layernorm"]
        found |= {f"{name}.weight": torch.ones(hidden) for name in norms}
        if "qwen3" in config["model_type"]:
            found |= {f"self_attn.{name}.weight": torch.ones(config["head_dim"]) for name in ("q_norm", "k_norm")}
        if config.get("num_experts"):
            found["mlp.gate.weight"] = torch.randn(config["num_experts"], hidden).bfloat16() * STD
        yield {f"model.layers.{layer}.{name}": tensor for name, tensor in found.items()}


def write(parent: Path, config: dict[str, Any], form: str) -> int:
    """The weights of this config.json in parent/form; their bytes."""
    torch.manual_seed(0)
    (pack, said), folder, placed, size = FORMATS[form], parent / form, {}, 0
    folder.mkdir(parents=True, exist_ok=True)
    for index, tensors in enumerate(files(config, pack)):
        name = f"model-{index:05}.safetensors"
        save_file({key: tensor.contiguous().cpu() for key, tensor in tensors.items()}, folder / name)
        placed |= dict.fromkeys(tensors, name)
        size += sum(tensor.nbytes for tensor in tensors.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": said}))
    return size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="llama3-8b", choices=[name for name in MODELS if "gpt" not in name])
    parser.add_argument("--format", nargs="+", default=list(FORMATS), choices=FORMATS)
    args = parser.parse_args()
    base = write_model(args.folder, args.model)
    for form in args.format:
        size = write(args.folder, json.loads((base / "config.json").read_text()), form)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (args.folder / form / name).write_bytes((base / name).read_bytes())
        print(f"{args.folder / form}: {size / 1e9:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
