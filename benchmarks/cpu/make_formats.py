"""The embedded model as a folder of safetensors, and again in each format that quantised safetensors have.

    python benchmarks/cpu/make_formats.py FOLDER [--format fp8-blocks nvfp4 ...] [--layers N]

Each number goes to the nearest that its format has, with scales of the largest: what formats can hold, not what the
algorithms of GPTQ, AWQ and others make of them by looking at activations. Folders that are there are kept. --layers
takes the first N alone, for what needs no sense.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from make_models import metadata_of, tensors_of, write_folder, write_gguf
from safetensors.torch import load_file, save_file
from stored_integers import awq, gptq, w4a16
from torch import Tensor

from chairlift.models.source import embedded_path

Tensors = dict[str, Tensor]
Pack = Callable[[Tensor], Tensors]
GROUP, BLOCK, HALVES = 64, 128, 64  # columns of a scale; sides of fp8's blocks; numbers of a table's
E4M3, E2M1 = 448.0, (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # the largest; all
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def integers(matrix: Tensor, bits: int, has_zeros: bool, group: int = GROUP) -> tuple[Any, Any, Any]:
    """Codes [out, in], scales and zeros [out, groups], in numpy; a scale is of f16."""
    groups, top = matrix.unflatten(1, (-1, group)), (1 << bits) - 1
    if has_zeros:
        low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
        scales = ((high - low) / top).half()
        zeros = (-low / scales.float()).round().clamp(0, top)
    else:
        scales = (groups.abs().amax(2) / (top / 2)).half()
        zeros = torch.full_like(scales, 1 << bits - 1).float()
    codes = (groups / scales.float()[..., None]).round().add_(zeros[..., None]).clamp_(0, top).flatten(1)
    return codes.int().numpy(), scales.numpy(), zeros.int().numpy()


def in_awq(matrix: Tensor) -> Tensors:
    return awq(*integers(matrix, 4, has_zeros=True))


def in_gptq(bits: int, has_zeros: bool) -> Pack:
    return lambda matrix: gptq(*integers(matrix, bits, has_zeros), bits)


def in_words(bits: int) -> Pack:
    return lambda matrix: w4a16(*integers(matrix, bits, has_zeros=False), bits)


def in_int8(matrix: Tensor) -> Tensors:
    scales = (matrix.abs().amax(1, keepdim=True) / 127.5).bfloat16()
    return {"weight": (matrix / scales.float()).round().clamp(-128, 127).to(torch.int8), "weight_scale": scales}


def in_scb(matrix: Tensor) -> Tensors:
    largest = matrix.abs().amax(1)
    numbers = (matrix * 127 / largest[:, None]).round().to(torch.int8)
    return {"weight": numbers, "SCB": largest, "weight_format": torch.tensor(0, dtype=torch.uint8)}


def e4m3(numbers: Tensor) -> Tensor:
    return numbers.clamp(-E4M3, E4M3).to(torch.float8_e4m3fn)


def fp8_tensor(matrix: Tensor) -> Tensors:
    scale = matrix.abs().max().reshape(1) / E4M3
    return {"weight": e4m3(matrix / scale), "weight_scale": scale}


def fp8_rows(matrix: Tensor) -> Tensors:
    scales = (matrix.abs().amax(1, keepdim=True) / E4M3).bfloat16()
    return {"weight": e4m3(matrix / scales.float()), "weight_scale": scales}


def fp8_blocks(matrix: Tensor) -> Tensors:
    rows, columns = matrix.shape
    high, wide = -(-rows // BLOCK), -(-columns // BLOCK)
    padded = torch.zeros(high * BLOCK, wide * BLOCK)
    padded[:rows, :columns] = matrix
    scales = padded.view(high, BLOCK, wide, BLOCK).abs().amax((1, 3)) / E4M3
    each = scales.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]
    return {"weight": e4m3(matrix / each), "weight_scale_inv": scales}


def e2m1(numbers: Tensor) -> Tensor:
    """Bytes of two halves, the first low."""
    table = torch.tensor(E2M1)
    codes = torch.bucketize(numbers.abs(), (table[1:] + table[:-1]) / 2) + 8 * (numbers < 0)
    return halves(codes[:, ::2], codes[:, 1::2])


def halves(low: Tensor, high: Tensor) -> Tensor:
    return (low | high << 4).to(torch.uint8)


def nvfp4(matrix: Tensor) -> Tensors:
    factor = E4M3 * E2M1[-1] / matrix.abs().max().reshape(1)
    groups = matrix.unflatten(1, (-1, 16))
    scales = e4m3(groups.abs().amax(2) / E2M1[-1] * factor)
    wide = scales.float().clamp(min=2**-9)[..., None] / factor
    return {"weight_packed": e2m1((groups / wide).flatten(1)), "weight_scale": scales, "weight_global_scale": factor}


def powers(groups: Tensor, most: int) -> Tensor:
    """Of two, of the largest of each group, so that it has the exponent of the type's largest."""
    return groups.abs().amax(2).clamp(min=2.0**-100).log2().floor() - most


def mxfp4(matrix: Tensor) -> Tensors:
    groups = matrix.unflatten(1, (-1, 32))
    found = powers(groups, 2)
    codes = e2m1((groups / found.exp2()[..., None]).flatten(1))
    return {"weight_packed": codes, "weight_scale": (found + 127).to(torch.uint8)}


def mxfp8(matrix: Tensor) -> Tensors:
    groups = matrix.unflatten(1, (-1, 32))
    found = powers(groups, 8)
    return {"weight": e4m3((groups / found.exp2()[..., None]).flatten(1)),
            "weight_scale": (found + 127).to(torch.uint8)}  # fmt: skip


def nf4(matrix: Tensor) -> Tensors:
    groups, table = matrix.reshape(-1, HALVES), torch.tensor(NF4)
    largest = groups.abs().amax(1)
    codes = torch.bucketize(groups / largest[:, None], (table[1:] + table[:-1]) / 2).flatten()
    state = {"quant_type": "nf4", "blocksize": HALVES, "dtype": "float32", "shape": list(matrix.shape)}
    return {
        "weight": halves(codes[1::2], codes[::2])[:, None], "weight.absmax": largest, "weight.quant_map": table,
        "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8),
    }  # fmt: skip


def of_ct(form: str, kind: str, bits: int, **more: Any) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": kind, "symmetric": True, "dynamic": False} | more
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "format": form}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


def of_gptq(bits: int, has_zeros: bool) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": False, "sym": not has_zeros}


_BITS = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_quant_storage": "uint8"}
FORMATS: dict[str, tuple[Pack, dict[str, Any]]] = {
    "fp8-tensor": (fp8_tensor, of_ct("naive-quantized", "float", 8, strategy="tensor")),
    "fp8-rows": (fp8_rows, of_ct("naive-quantized", "float", 8, strategy="channel")),
    "fp8-blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}),
    "mxfp8": (mxfp8, of_ct("mxfp8-quantized", "float", 8, strategy="group", group_size=32)),
    "w8a8": (in_int8, of_ct("int-quantized", "int", 8, strategy="channel")),
    "w8a16": (in_words(8), of_ct("pack-quantized", "int", 8, strategy="group", group_size=GROUP)),
    "int8": (in_scb, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    "gptq-8": (in_gptq(8, has_zeros=False), of_gptq(8, has_zeros=False)),
    "nvfp4": (nvfp4, of_ct("nvfp4-pack-quantized", "float", 4, strategy="tensor_group", group_size=16)),
    "nf4": (nf4, {"quant_method": "bitsandbytes", **_BITS}),
    "awq": (in_awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}),
    "gptq-4": (in_gptq(4, has_zeros=True), of_gptq(4, has_zeros=True)),
    "w4a16": (in_words(4), of_ct("pack-quantized", "int", 4, strategy="group", group_size=GROUP)),
    "mxfp4": (mxfp4, of_ct("mxfp4-pack-quantized", "float", 4, strategy="group", group_size=32)),
    "gptq-3": (in_gptq(3, has_zeros=True), of_gptq(3, has_zeros=True)),
}  # fmt: skip


def write(base: Path, folder: Path, form: str, num_layers: int) -> int:
    """Matrices of layers in this format, all else as in base; the bytes of the former."""
    (pack, said), tensors, size = FORMATS[form], {}, 0
    for name, tensor in load_file(base / "model.safetensors").items():
        if name.startswith("model.layers.") and int(name.split(".")[2]) >= num_layers:
            continue
        if not name.endswith("_proj.weight"):
            tensors[name] = tensor
            continue
        packed = {f"{name.removesuffix('weight')}{role}": each.contiguous() for role, each in pack(tensor).items()}
        tensors |= packed
        size += sum(each.nbytes for each in packed.values())
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    values = json.loads((base / "config.json").read_text()) | {"quantization_config": said}
    values["num_hidden_layers"] = min(num_layers, values["num_hidden_layers"])
    (folder / "config.json").write_text(json.dumps(values, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((base / name).read_bytes())
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the embedded model in every format of quantised safetensors.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--layers", type=int, default=1000, help="at most (default: all)")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    base, embedded = args.folder / "smollm2", GGUFReader(embedded_path())
    if not base.exists():
        write_folder(base, embedded)
        write_gguf(args.folder / "q8_0.gguf", metadata_of(embedded), tensors_of(embedded))
    for form in args.format:
        if not (args.folder / form).exists():
            size = write(base, args.folder / form, form, args.layers)
            print(f"{args.folder / form}: {size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
