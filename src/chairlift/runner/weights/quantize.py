"""The format of weights: the model's number type, blocks or integers of a file, or rounded to fewer bits at load."""

import logging
from functools import partial

import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.spec import BlockWeights, ModelConfig
from chairlift.models.tensors import ends_size, layers_size, num_parameters, weight_bytes
from chairlift.runner.kernels import why_missing, why_not_fp8, why_not_only
from chairlift.runner.machine import hardware
from chairlift.runner.ops import Ops
from chairlift.runner.weights.assemble import WeightFormat

STORED = "stored"
MXFP4, PACKED = "mxfp4", "packed"  # on a GPU, of experts alone and of all matrices; asked for as `stored`
_INT8_BYTES, _INT4_BYTES = 34 / 32, 20 / 32  # per weight, with its share of the scales
_log = logging.getLogger(__name__)


def pick_dtype(
    settings: Settings, device: torch.device, config: ModelConfig, has_bf16: bool | None = None
) -> torch.dtype:
    """The number type to compute in, for weights of the file. `has_bf16`: of a GPU that is not here."""
    # The products of weights in fp8 come out in bfloat16.
    stored = "bfloat16" if settings.quantize == "fp8" else config.dtype
    if settings.dtype == "float16" and device.type == "cpu" and _has_integers(settings, config):
        dtype = hardware.resolve_dtype("auto", device, stored)
        _log.warning(
            "dtype float16: the file's integers stay as they are, and a CPU computes with them in %s; --quantize none "
            "widens them to float16",
            hardware.dtype_name(dtype),
        )
        return dtype
    return hardware.resolve_dtype(settings.dtype, device, stored, has_bf16)


def _has_integers(settings: Settings, config: ModelConfig) -> bool:
    """Of safetensors, that native kernels may keep."""
    is_kept = config.quantisation is not None and config.blocks is not None and settings.quantize in ("auto", STORED)
    return is_kept and settings.kernels != "torch" and not why_missing("native")


def pick_quantize(name: str, dtype_name: str, kernels: str, config: ModelConfig) -> str:
    """`auto` keeps what a file has quantised where kernels can. A number type that is named widens GGUF's blocks."""
    is_mxfp4 = config.four_bits is not None and (kernels == "triton" or config.blocks is None)
    is_packed = config.packed is not None and (kernels == "triton" or config.blocks is None)
    stored = MXFP4 if is_mxfp4 else PACKED if is_packed else STORED
    keeping = "native" if stored == STORED else "triton"  # the kernels that do
    if name == "auto":
        can_name = stored != STORED or config.quantisation is not None
        can_keep = _kept(config, stored) and kernels == keeping and (can_name or dtype_name == "auto")
        return stored if can_keep else "none"
    if name == "fp8" and has_experts(config):
        raise InvalidConfig("quantize fp8: experts are not kept in fp8; use --quantize none")
    if name in (STORED, "int8", "int4") and (why_not := why_not_only(kernels, keeping if name == STORED else "native")):
        raise InvalidConfig(f"quantize {name}: {why_not}; use --quantize none")
    if name == STORED and not _kept(config, stored):
        raise InvalidConfig(
            "quantize stored: this model's file has no quantised weights that can be kept; use --quantize int8 or none"
        )
    return stored if name == STORED else name


def pick_weight_format(quantize: str, kernels: str, dtype: torch.dtype, config: ModelConfig, ops: Ops) -> WeightFormat:
    """How matrices are kept; one that the format says nothing of becomes what `ops.weight` makes of it."""
    if quantize == "fp8":
        return WeightFormat(layers=_fp8_weight(kernels, dtype, config))
    if quantize in ("int8", "int4"):
        from chairlift.runner.native.ops import NativeOps
        from chairlift.runner.native.quantised import INT4, INT8

        assert isinstance(ops, NativeOps)
        ends = partial(ops.rounded_weight, INT8)  # 4 bits cost too much accuracy there
        return WeightFormat(ends if quantize == "int8" else partial(ops.rounded_weight, INT4), ends)
    if kernels == "mindspore":
        from chairlift.runner.mindspore.weight import MindSporeWeight

        return WeightFormat(MindSporeWeight, MindSporeWeight)
    return WeightFormat(as_stored=quantize in (STORED, MXFP4, PACKED))


def kept_bytes(config: ModelConfig, quantize: str, itemsize: int) -> int:
    """Memory for the weights of a model; `itemsize`: of those that are not quantised."""
    if blocks := _kept(config, quantize):
        return blocks.num_bytes + (num_parameters(config) - blocks.num_weights) * itemsize
    if quantize in ("int8", "int4"):
        layers = layers_size(config) * (_INT8_BYTES if quantize == "int8" else _INT4_BYTES)
        rest = weight_bytes(config, itemsize, 0) - ends_size(config) * itemsize
        return round(layers + ends_size(config) * _INT8_BYTES + rest)
    return weight_bytes(config, itemsize, 1 if quantize == "fp8" else itemsize)


def kept_as(config: ModelConfig, quantize: str) -> str:
    """none, fp8, int8, int4, or the type of a file's blocks or integers, such as Q4_1 and W4."""
    blocks = _kept(config, quantize)
    return blocks.type_name if blocks else quantize


def has_experts(config: ModelConfig) -> bool:
    return any(layer.feed_forward.experts for layer in config.kinds_of_layers)


def _kept(config: ModelConfig, quantize: str) -> BlockWeights | None:
    """Of a file, that stay as they are; None: none of them."""
    return {STORED: config.blocks, MXFP4: config.four_bits, PACKED: config.packed}.get(quantize)


def _fp8_weight(kernels: str, dtype: torch.dtype, config: ModelConfig) -> type:
    widths = {config.hidden_size, *(layer.feed_forward.width for layer in config.layers)}
    widths |= {mixer.num_outputs for mixer in config.mixers} | {config.token_width}
    ways_out = "--quantize none"
    why_not = why_not_fp8(kernels)
    if not why_not and dtype is not torch.bfloat16:
        why_not = f"products come out in bfloat16, not {hardware.dtype_name(dtype)}"
        ways_out = f"--dtype bfloat16 or {ways_out}"
    if not why_not and any(width % 16 for width in widths):
        why_not = f"the widths {', '.join(map(str, sorted(widths)))} are not all multiples of 16"
    if why_not:
        raise InvalidConfig(f"quantize fp8: {why_not}; use {ways_out}")
    from chairlift.runner.cuda.products.fp8 import Fp8Weight

    return Fp8Weight
