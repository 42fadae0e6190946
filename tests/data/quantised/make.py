"""Makes made.safetensors: small matrices by the libraries of their formats, each with what that library widens it to.

python tests/data/quantised/make.py     needs compressed-tensors and bitsandbytes
"""

from pathlib import Path
from typing import Any

import bitsandbytes
import compressed_tensors
import torch
from bitsandbytes import functional
from compressed_tensors.compressors import compress_module, decompress_module
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.initialize import initialize_module_for_quantization
from compressed_tensors.quantization.utils import calculate_qparams
from compressed_tensors.quantization.utils.helpers import generate_gparam
from safetensors.torch import save_file
from torch import Tensor

OUT, IN, BLOCK = 16, 64, (8, 32)
INT: dict[str, Any] = {"type": "int", "symmetric": True}
FP8: dict[str, Any] = {"num_bits": 8, "type": "float", "symmetric": True}
FP4: dict[str, Any] = {"num_bits": 4, "type": "float", "symmetric": True}
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "w4-groups": ("pack-quantized", INT | {"num_bits": 4, "strategy": "group", "group_size": 32}),
    "w4-zeros": ("pack-quantized", INT | {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": False}),
    "w3-groups": ("pack-quantized", INT | {"num_bits": 3, "strategy": "group", "group_size": 32}),
    "w8-rows": ("pack-quantized", INT | {"num_bits": 8, "strategy": "channel"}),
    "int8-rows": ("int-quantized", INT | {"num_bits": 8, "strategy": "channel"}),
    "fp8-rows": ("float-quantized", FP8 | {"strategy": "channel"}),
    "fp8-tensor": ("float-quantized", FP8 | {"strategy": "tensor"}),
    "fp8-blocks": ("float-quantized", FP8 | {"strategy": "block", "block_structure": list(BLOCK)}),
    "nvfp4": ("nvfp4-pack-quantized", FP4 | {
        "strategy": "tensor_group", "group_size": 16, "scale_dtype": torch.float8_e4m3fn,
        "zp_dtype": torch.float8_e4m3fn,
    }),
    "mxfp4": ("mxfp4-pack-quantized", FP4 | {
        "strategy": "group", "group_size": 32, "scale_dtype": torch.uint8, "zp_dtype": torch.uint8,
    }),
}  # fmt: skip


def bounds(matrix: Tensor, args: QuantizationArgs) -> tuple[Tensor, Tensor]:
    if args.strategy == "tensor":
        return matrix.min().reshape(1), matrix.max().reshape(1)
    high, wide = BLOCK if args.strategy == "block" else (1, args.group_size or IN)
    pieces = matrix.reshape(OUT // high, high, IN // wide, wide)
    return pieces.amin((1, 3)), pieces.amax((1, 3))


def by_compressed_tensors(form: str, args: QuantizationArgs) -> dict[str, Tensor]:
    linear = torch.nn.Linear(IN, OUT, bias=False, dtype=torch.bfloat16).requires_grad_(False)
    matrix = linear.weight.data.normal_(0.0, 0.05)
    initialize_module_for_quantization(linear, QuantizationScheme(targets=["Linear"], weights=args))
    factor = None
    if hasattr(linear, "weight_global_scale"):
        factor = generate_gparam(matrix.min(), matrix.max()).reshape(1)
        linear.weight_global_scale.data.copy_(factor)
    scales, zeros = calculate_qparams(*bounds(matrix, args), args, factor)
    linear.weight_scale.data.copy_(scales.reshape(linear.weight_scale.shape))
    if not args.symmetric:
        linear.weight_zero_point.data.copy_(zeros.reshape(linear.weight_zero_point.shape))
    compress_module(linear, form)
    stored = {name: tensor.clone() for name, tensor in linear.state_dict().items()}
    decompress_module(linear, form)
    return stored | {"expected": linear.weight.data}


def by_bitsandbytes(kind: str, is_nested: bool) -> dict[str, Tensor]:
    matrix = (torch.randn(OUT, IN) * 0.05).bfloat16()
    packed, state = functional.quantize_4bit(matrix, blocksize=64, compress_statistics=is_nested, quant_type=kind)
    others = {f"weight.{name}": tensor for name, tensor in state.as_dict(packed=True).items()}
    return {"weight": packed, **others, "expected": functional.dequantize_4bit(packed, state)}


def in_8_bits() -> dict[str, Tensor]:
    packed, scales, _ = functional.int8_vectorwise_quant(torch.randn(OUT, IN).half())
    return {"weight": packed, "SCB": scales, "expected": functional.int8_vectorwise_dequant(packed, scales)}


def main() -> None:
    torch.manual_seed(0)
    made = {name: by_compressed_tensors(form, QuantizationArgs(**args)) for name, (form, args) in FORMATS.items()}
    made |= {name: by_bitsandbytes(name[:3], name.endswith("nested")) for name in ("nf4", "nf4-nested", "fp4")}
    made["int8"] = in_8_bits()
    tensors = {f"{name}.{role}": each.contiguous() for name, roles in made.items() for role, each in roles.items()}
    makers = f"compressed-tensors {compressed_tensors.__version__}, bitsandbytes {bitsandbytes.__version__}"
    save_file(tensors, Path(__file__).parent / "made.safetensors", {"makers": makers})


if __name__ == "__main__":
    main()
