"""The memory that serving a model would take: the arithmetic of `load` without loading. Of several ranks, that of one.

`load` measures the steps and graphs of a GPU, which are estimated here; all else is the same code.
"""

from dataclasses import dataclass, replace

import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.models.kv_groups import kv_groups
from chairlift.models.shards import check_cuts, largest_shard
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import num_parameters
from chairlift.runner.cuda.adapters.layout import slot_numbers
from chairlift.runner.kernels import pick_kernels, pick_kv_dtype
from chairlift.runner.kv_cache import kv_bytes_per_block, num_kv_tensors, sizes_of
from chairlift.runner.machine import hardware
from chairlift.runner.machine.devices import DeviceSpec
from chairlift.runner.memory.budget import Budget, check_weights, gib
from chairlift.runner.memory.footprint import LOADING_CODE, estimate_footprint, step_bytes
from chairlift.runner.memory.gpu import SHARE
from chairlift.runner.memory.measure import largest_count, with_step
from chairlift.runner.memory.sizing import limits_without_pool, lowered, with_pool
from chairlift.runner.weights.quantize import kept_as, kept_bytes, pick_dtype, pick_quantize

_BF16, _FP8 = (8, 0), (8, 9)  # the first GPUs that have them


@dataclass(frozen=True, slots=True)
class Forecast:
    device: DeviceSpec
    dtype: str
    kv_dtype: str
    quantize: str  # as `kept_as` names it
    num_parameters: int
    parameter_bytes: int  # of the budget's weights; the others: rotations, slots of adapters, code of a GPU's libraries
    limits: Limits
    lowered: str | None  # the warning where the cache does not hold the model's context
    kv_token_bytes: int
    budget: Budget  # of a CPU without graphs, its total the free memory
    share: float | None  # of a GPU that may be used
    num_ranks: int = 1  # each with a GPU of its own, or sharing the memory of a CPU


def forecast(settings: Settings, source: Source, config: ModelConfig, device: DeviceSpec) -> Forecast:
    if config.fallback is not None:
        from chairlift.runner.fallback.describe import describe

        config = describe(config, is_padded=device.kind == "cuda")
    num_ranks, whole_size = settings.tensor_parallel, num_parameters(config)
    check_cuts(config, num_ranks)
    config = largest_shard(config, num_ranks)
    if device.kind == "cpu":
        device = replace(device, total=device.total // num_ranks)
    where = torch.device(device.kind)
    dtype = pick_dtype(settings, where, config, device.capability >= _BF16)
    if "fp8" in (settings.kv_dtype, settings.quantize) and device.capability < _FP8:
        raise InvalidConfig(f"fp8: {device.name} does not have it; it takes a GPU of compute capability 8.9 or above")
    kernels = pick_kernels(settings.kernels, where, dtype, config, is_here=device.kind == "cpu")
    is_fp8 = settings.kv_dtype == "fp8" and kernels == "triton"
    kv_dtype = torch.float8_e4m3fn if is_fp8 else pick_kv_dtype(settings.kv_dtype, kernels, dtype)
    sizes = sizes_of(settings.block_size, dtype, kv_dtype)
    limits = limits_without_pool(settings, config, where, memory=device.total, sizes=sizes)
    groups = kv_groups(config, bool(limits.groups), sizes)
    quantize = pick_quantize(settings.quantize, settings.dtype, kernels, config)
    weights = parameter_bytes = kept_bytes(config, quantize, dtype.itemsize)
    own = config.mixers if config.fallback is None else ()
    tables = {table for mixer in own for table in mixer.rotations}
    weights += 4 * limits.max_model_len * sum(width for _, width in tables)
    if limits.num_adapter_slots and kernels == "triton":
        weights += limits.num_adapter_slots * slot_numbers(config, settings.max_lora_rank) * dtype.itemsize
    block_bytes = kv_bytes_per_block(config, limits.block_size, kv_dtype, groups)
    share = (settings.memory or SHARE) if device.kind == "cuda" else None
    num_fitting = None
    if share is None:
        budget = _on_cpu(config, limits, device, weights, dtype.itemsize)
    else:
        has_graphs = kernels == "triton"
        budget, limits = _on_gpu(config, limits, device, weights, dtype.itemsize, share, has_graphs)
        if settings.num_blocks is None and settings.kv_memory is None:
            num_fitting = budget.num_blocks_within(share, block_bytes, limits, num_kv_tensors(config, groups))
    wanted = limits.max_model_len
    limits = with_pool(limits, settings, source, block_bytes, num_fitting, device.total - weights)
    kv_bytes = limits.num_blocks * block_bytes
    if kv_bytes > budget.free:  # of a size that was asked for
        raise InvalidConfig(
            f"the KV cache that was asked for needs {gib(kv_bytes)} GiB and {gib(max(0, budget.free))} are free "
            "beside all else; lower --num-blocks or --kv-memory"
        )
    return Forecast(
        device=device,
        dtype=hardware.dtype_name(dtype),
        kv_dtype=hardware.dtype_name(kv_dtype),
        quantize=kept_as(config, quantize),
        num_parameters=whole_size,
        parameter_bytes=parameter_bytes,
        limits=limits,
        lowered=lowered(limits, wanted),
        kv_token_bytes=block_bytes // limits.block_size,
        budget=replace(budget, kv=kv_bytes),
        share=share,
        num_ranks=num_ranks,
    )


def _on_gpu(
    config: ModelConfig, limits: Limits, device: DeviceSpec, weights: int, itemsize: int, share: float, has_graphs: bool
) -> tuple[Budget, Limits]:
    """The budget without a cache, and limits with a step that leaves room for one."""
    check_weights(
        weights,
        device.total,
        device.others,
        share,
        "a smaller model, a larger GPU, several with --tensor-parallel, or --device cpu",
    )
    weights += LOADING_CODE
    room = int(share * device.total) - device.others - weights
    footprint = estimate_footprint(config, limits, itemsize, room)
    graphs = footprint.graphs * has_graphs  # torch's operations are launched one by one
    budget = Budget(device.total, device.others, weights, footprint.activations, graphs)
    return budget, with_step(limits, footprint.num_tokens)


def _on_cpu(config: ModelConfig, limits: Limits, device: DeviceSpec, weights: int, itemsize: int) -> Budget:
    """Nothing is reserved for steps there; their size is for information."""
    if weights > device.total:
        raise InvalidConfig(
            f"the weights need {gib(weights)} GiB and {gib(device.total)} are free; use a smaller model, "
            "--quantize int8 or int4, or --dtype bfloat16"
        )
    return Budget(device.total, 0, weights, step_bytes(config, limits, largest_count(limits), itemsize), 0)
