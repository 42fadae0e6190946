"""quantization_config of a model's files: what it says of the numbers, checked key by key.

Always: a method, a version or a key that changes the numbers and is not built is refused by name. Which modules are
quantised is not asked here: the tensors say it (`runner/weights/quantised.py`), and lists of those that are not often
disagree with them.
"""

from collections.abc import Callable
from typing import Any

from chairlift.config.fields import Fields
from chairlift.core.errors import InvalidConfig
from chairlift.models.spec import Quantisation

_NEUTRAL: tuple[object, ...] = (None, False, "", [], {})
_LISTS = frozenset({"quant_method", "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules"})
_OF_MAKING = frozenset({  # and of other programs
    "producer", "meta", "quantization_status", "global_compression_ratio", "version", "backend", "damp_percent",
    "true_sequential", "static_groups", "model_name_or_path", "model_file_base_name", "quantizer", "dataset", "iters",
    "batch_size", "enable_quanted_input", "autoround_version", "low_gpu_mem_usage", "nsamples", "seqlen", "lr",
    "minmax_lr", "enable_minmax_tuning", "amp", "scale_dtype", "data_type", "gradient_accumulate_steps",
    "to_quant_block_names", "block_name_to_quantize", "cache_block_outputs", "act_group_aware", "use_cuda_fp16",
    "model_seqlen", "pad_token_id",
    "use_exllama", "max_input_length", "exllama_config", "disable_exllama", "tokenizer", "hyb_act", "pack_dtype",
    "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "low_cpu_mem_usage", "lm_head", "damp_auto_increment", "mse",
    "is_marlin_format", "uncalibrated", "supported_bits", "kv_cache_scheme", "kv_cache_quant_algo", "act_bits",
    "super_bits", "super_group_size", "format_version", "activation_scheme", "llm_int8_threshold", "fmt", "scale_fmt",
})  # fmt: skip


_OF_GROUPS = frozenset({"targets", "input_activations", "format"})
_OF_WEIGHTS = frozenset({
    "actorder", "dynamic", "observer", "observer_kwargs", "symmetric", "scale_dtype", "zp_dtype", "group_size",
    "num_bits", "block_structure",
})  # fmt: skip


def read_quantisation(config: Fields, extra: tuple[str, ...]) -> Quantisation | None:
    """extra: methods that the family's files alone have."""
    given = config.get("quantization_config")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise config.bad("quantization_config", "must be a map")
    fields = Fields(f"{config.origin}: quantization_config", given)
    method = given.get("quant_method")
    if method is None and "quant_algo" in given:
        method = "modelopt"
    if method in extra:
        return Quantisation(method=str(method))
    read = _METHODS.get(method) if isinstance(method, str) else None
    if read is None:
        raise InvalidConfig(
            f"{config.origin}: quantization_config ({'unnamed' if method is None else method}) is not supported; take "
            f"one of {', '.join(_METHODS)}, or one without and --quantize"
        )
    found = read(fields)
    _refuse_unread(fields, _LISTS | _OF_MAKING)
    return found


def _refuse_unread(fields: Fields, harmless: frozenset[str]) -> None:
    for key in fields.unread:
        if key not in harmless and fields.values[key] not in _NEUTRAL:
            raise fields.bad(key, "is not understood and may change the numbers")


def _require(fields: Fields, key: str, *allowed: object) -> None:
    if fields.get(key) not in (None, *allowed):
        raise fields.bad(key, f"must be {' or '.join(map(repr, allowed))}")


def _fp8(fields: Fields) -> Quantisation:
    _require(fields, "fmt", "e4m3", "float8_e4m3fn")
    _require(fields, "moe_quant_algo")
    block = fields.get("weight_block_size")
    if block is None:
        return Quantisation(method="fp8", floats="FP8")
    if not (isinstance(block, list) and len(block) == 2 and all(type(each) is int and each > 0 for each in block)):
        raise fields.bad("weight_block_size", "must be two whole numbers above 0")
    return Quantisation(method="fp8", block=(block[0], block[1]), floats="FP8")


def _bits(fields: Fields, keys: tuple[str, ...], *allowed: int) -> int:
    key = next((key for key in keys if fields.get(key) is not None), keys[0])
    for each in keys:
        fields.get(each)
    bits = fields.size(key)
    if bits not in allowed:
        raise fields.bad(key, f"must be {' or '.join(map(str, allowed))}")
    return bits


def _group(fields: Fields, *keys: str) -> int:
    """0: it is one for a row, or not said."""
    given = [fields.get(key) for key in keys]
    size = next((each for each in given if each is not None), 0)
    if type(size) is not int or size < -1:
        raise fields.bad(keys[0], "must be -1 or a whole number")
    return max(0, size)


def _awq(fields: Fields) -> Quantisation:
    _require(fields, "version", "gemm", "GEMM")
    fields.get("zero_point")  # files without zeros have them too
    bits, group = _bits(fields, ("bits", "w_bit"), 4), _group(fields, "group_size", "q_group_size")
    return Quantisation(method="awq", bits=bits, group=group, integers=(bits, group))


def _gptq(fields: Fields) -> Quantisation:
    for key in ("checkpoint_format", "format", "method"):
        _require(fields, key, "gptq", "gptq_v2")
    is_mixed = bool(fields.get("dynamic"))
    for key in ("sym", "desc_act"):  # the tensors say it
        fields.get(key)
    bits, group = _bits(fields, ("bits",), 2, 3, 4, 8), _group(fields, "group_size")
    adds_one = "gptq_v2" not in (fields.get("checkpoint_format"), fields.get("format"))
    bits_of_all, group_of_all = (0, 0) if is_mixed else (bits, group)
    return Quantisation(
        method="gptq", bits=bits_of_all, group=group_of_all, adds_one=adds_one, integers=(bits, group)
    )  # fmt: skip


_PACKINGS = ("auto_round:auto_gptq", "auto_round:auto_awq", "auto_gptq", "auto_awq", "auto_round:llm_compressor")


def _auto_round(fields: Fields) -> Quantisation:
    _require(fields, "packing_format", *_PACKINGS)
    is_mixed = bool(fields.get("extra_config"))
    fields.get("sym")
    bits, group = _bits(fields, ("bits",), 2, 3, 4, 8), _group(fields, "group_size")
    bits_of_all, group_of_all = (0, 0) if is_mixed else (bits, group)
    return Quantisation(method="auto-round", bits=bits_of_all, group=group_of_all, integers=(bits, group))


_FORMATS = (
    "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
    "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision",
)  # fmt: skip


_OF_FORMAT = {"nvfp4-pack-quantized": "NVFP4", "mxfp4-pack-quantized": "MXFP4", "mxfp8-quantized": "MXFP8"}
_FLOATS = ("FP8", "MXFP8", "NVFP4", "MXFP4")  # the widest first


def _compressed_tensors(fields: Fields) -> Quantisation:
    _require(fields, "format", *_FORMATS)
    for key in ("sparsity_config", "transform_config"):
        if fields.get(key) not in _NEUTRAL:
            raise fields.bad(key, "is not supported")
    groups = fields.get("config_groups")
    if not isinstance(groups, dict) or not all(isinstance(each, dict) for each in groups.values()):
        raise fields.bad("config_groups", "must be a map of groups")
    found = {_of_group(fields, name, group) for name, group in groups.items()}
    if len(found) == 1:
        return found.pop()
    integers = max((each.integers for each in found if each.integers), default=None)
    floats = next((kind for kind in _FLOATS if kind in {each.floats for each in found}), "")
    return Quantisation(method="compressed-tensors", integers=integers, floats="" if integers else floats)


def _of_group(fields: Fields, name: str, group: dict[str, Any]) -> Quantisation:
    own = Fields(f"{fields.origin}: config_groups: {name}", group)
    _require(own, "format", *_FORMATS)
    if own.get("output_activations") not in _NEUTRAL:
        raise own.bad("output_activations", "is not supported")
    weights = own.get("weights")
    if not isinstance(weights, dict):
        raise own.bad("weights", "must be a map")
    _refuse_unread(own, _OF_GROUPS)
    own = Fields(f"{own.origin}: weights", weights)
    _require(own, "strategy", "tensor", "channel", "group", "block", "tensor_group")
    _require(own, "type", "int", "float")
    _refuse_unread(own, _OF_WEIGHTS)
    block = own.get("block_structure")
    if isinstance(block, list) and len(block) == 2 and all(type(each) is int and each > 0 for each in block):
        return Quantisation(method="compressed-tensors", block=(block[0], block[1]), floats="FP8")
    form = group.get("format") or fields.get("format")
    is_packed = form == "pack-quantized"
    bits, size = own.size("num_bits", most=8), _group(own, "group_size")
    if own.get("type") != "int":
        return Quantisation(method="compressed-tensors", floats=_OF_FORMAT.get(str(form), "FP8"))
    if not is_packed:
        return Quantisation(method="compressed-tensors", integers=(8, size))  # a byte each
    return Quantisation(method="compressed-tensors", bits=bits, group=size, integers=(bits, size))


_ALGORITHMS = (
    "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "fp8_pb_wo", "NVFP4", "W4A16_NVFP4", "MXFP4", "MXFP8",
    "MIXED_PRECISION",
)  # fmt: skip


def _modelopt(fields: Fields) -> Quantisation:
    _require(fields, "quant_algo", *_ALGORITHMS)
    for key in ("config_groups", "quantized_layers", "group_size", "has_zero_point"):  # the tensors say it
        fields.get(key)
    if fields.get("pre_quant_scale"):
        raise fields.bad("pre_quant_scale", "is not supported")
    named = str(fields.get("quant_algo"))
    return Quantisation(method="modelopt", floats=next((kind for kind in _FLOATS[1:] if kind in named), "FP8"))


def _bitsandbytes(fields: Fields) -> Quantisation:
    _require(fields, "bnb_4bit_quant_type", "nf4", "fp4")
    for key in fields.values:
        if key.startswith(("bnb_4bit_", "llm_int8_", "load_in_", "_load_in_")):
            fields.get(key)
    is_int8 = bool(fields.get("load_in_8bit"))
    return Quantisation(
        method="bitsandbytes", integers=(8, 0) if is_int8 else None, floats="" if is_int8 else "NF4"
    )  # fmt: skip


_METHODS: dict[str, Callable[[Fields], Quantisation]] = {
    "awq": _awq, "fp8": _fp8, "gptq": _gptq, "compressed-tensors": _compressed_tensors, "modelopt": _modelopt,
    "bitsandbytes": _bitsandbytes, "auto-round": _auto_round,
}  # fmt: skip
