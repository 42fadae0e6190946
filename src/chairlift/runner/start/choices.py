"""What a runner is made of, chosen from settings, model and machine before anything is loaded.

Always: ranks of one engine choose the same, each for its part of the model.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from chairlift.config.settings import Settings
from chairlift.core.limits import Limits
from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.files.gguf.header import read_header
from chairlift.models.kv_groups import KvGroups, kv_groups
from chairlift.models.shards import Rank, shard
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.runner.adapters.low_rank import make_host_adapter
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.attention.flashinfer import FlashKernels
from chairlift.runner.kernels import (
    check_exact,
    fastest,
    make_ops,
    pick_attention,
    pick_kernels,
    pick_kv_dtype,
    why_missing,
)
from chairlift.runner.kv_cache import sizes_of
from chairlift.runner.machine import hardware
from chairlift.runner.memory.sizing import limits_without_pool
from chairlift.runner.mindspore.installed import check_fits
from chairlift.runner.mindspore.target import pick_dtype as pick_mindspore_dtype
from chairlift.runner.mindspore.target import start as start_mindspore
from chairlift.runner.model import Decoder, PagedModel
from chairlift.runner.ops import Ops, PagedOps
from chairlift.runner.weights.assemble import WeightFormat, build_model
from chairlift.runner.weights.ckpt import CkptTensors
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.quantize import pick_quantize, pick_weight_format
from chairlift.runner.weights.shards import ShardTensors
from chairlift.runner.weights.source import CutSource, TensorSource

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choices:
    config: ModelConfig  # of this rank
    device: torch.device
    target: str | None  # of MindSpore
    threads: int
    dtype: torch.dtype
    kv_dtype: torch.dtype
    quantize: str
    own_kernels: str  # of torch's tensors
    kernels: str
    flash: FlashKernels | None
    limits: Limits  # without a pool
    kv_groups: KvGroups
    ops: Ops
    weight_format: WeightFormat


def choose(settings: Settings, config: ModelConfig, rank: Rank) -> Choices:
    """config: of the whole model."""
    config = shard(config, rank)
    device = hardware.pick_device(settings.device)
    if config.fallback is not None:
        return _choose_fallback(settings, config, device)
    if device.type == "cuda" and rank.count > 1:
        device = torch.device("cuda", rank.index % torch.cuda.device_count())
        torch.cuda.set_device(device)
    # The products of weights in fp8 come out in bfloat16.
    stored = "bfloat16" if settings.quantize == "fp8" else config.dtype
    threads = settings.threads or max(1, hardware.num_cpus() // rank.count)
    torch.set_num_threads(threads)
    if settings.is_mindspore:
        check_fits(config, settings.device)
    target = start_mindspore(settings, threads) if settings.is_mindspore else None
    if target is None:
        dtype = hardware.resolve_dtype(settings.dtype, device, stored)
    else:
        dtype = pick_mindspore_dtype(settings.dtype, target)
    own = pick_kernels(settings.kernels, device, dtype, config)
    kernels = own if target is None else "mindspore"
    if target is None and settings.kernels == "auto" and (why := why_missing(fast := fastest(device))):
        _log.warning(
            "the %s kernels cannot be used: they %s; torch's operations take their place and are slower", fast, why
        )
    if settings.exact:
        check_exact(kernels, device)
    kv_dtype = pick_kv_dtype(settings.kv_dtype, kernels, dtype)
    quantize = pick_quantize(settings.quantize, settings.dtype, kernels, config)
    flash = pick_attention(settings.attention, kernels, device, dtype, kv_dtype, config, settings.block_size)
    ops = make_ops(own, threads, settings.exact)
    sizes = sizes_of(settings.block_size, dtype, kv_dtype)
    limits = limits_without_pool(settings, config, device, can_group=target is None, sizes=sizes)
    return Choices(
        config=config,
        device=device,
        target=target,
        threads=threads,
        dtype=dtype,
        kv_dtype=kv_dtype,
        quantize=quantize,
        own_kernels=own,
        kernels=kernels,
        flash=flash,
        limits=limits,
        kv_groups=kv_groups(config, bool(limits.groups), sizes),
        ops=ops,
        weight_format=pick_weight_format(quantize, kernels, dtype, config, ops),
    )


def _choose_fallback(settings: Settings, config: ModelConfig, device: torch.device) -> Choices:
    """For a model of transformers: torch's operations, and on a GPU our attention."""
    from chairlift.runner.fallback.describe import describe_for

    threads = settings.threads or hardware.num_cpus()
    torch.set_num_threads(threads)
    dtype = hardware.resolve_dtype(settings.dtype, device, config.dtype)
    config, kernels = describe_for(config, settings.kernels, device, dtype)
    kv_dtype = pick_kv_dtype(settings.kv_dtype, kernels, dtype)
    return Choices(
        config=config,
        device=device,
        target=None,
        threads=threads,
        dtype=dtype,
        kv_dtype=kv_dtype,
        quantize="none",
        own_kernels=kernels,
        kernels=kernels,
        flash=pick_attention(settings.attention, kernels, device, dtype, kv_dtype, config, settings.block_size),
        limits=limits_without_pool(settings, config, device, can_group=False),
        kv_groups=kv_groups(config, can_group=False),
        ops=make_ops(kernels, threads),
        weight_format=WeightFormat(),
    )


def load_fallback_model(settings: Settings, source: Source, chosen: Choices) -> PagedModel:
    """A model of transformers."""
    from chairlift.runner.fallback.load import load_fallback

    assert isinstance(chosen.ops, PagedOps)
    has_weights, longest = settings.load_format != "dummy", chosen.limits.max_model_len
    return load_fallback(chosen.config, source, chosen.ops, chosen.dtype, chosen.device, longest, has_weights)


def load_model(settings: Settings, source: Source, config: ModelConfig, rank: Rank, chosen: Choices) -> Decoder:
    """The rank's part of the whole model."""
    whole = open_tensors(settings, source, config, chosen.dtype, chosen.device, chosen.threads)
    tensors: TensorSource = whole if rank.count == 1 else ShardTensors(whole, config, rank)
    model = build_model(
        chosen.config, chosen.ops, tensors, chosen.dtype, chosen.device, chosen.limits.max_model_len,
        chosen.weight_format,
    )  # fmt: skip
    if isinstance(whole, HfTensors) and (line := whole.widened):
        _log.warning("%s: %s", source.path, line)
    return model


def open_tensors(
    settings: Settings, source: Source, config: ModelConfig, dtype: torch.dtype, device: torch.device, threads: int
) -> CutSource:
    """The source of the weights; random ones are made in this type, on this device."""
    if settings.load_format == "dummy":
        return DummyTensors(config, dtype, device)
    if source.kind == "gguf":
        return GgufTensors(read_header(source.path), threads)
    return CkptTensors(source.path) if source.kind == "ckpt" else HfTensors(source.path, config.quantisation)


def adapter_store(settings: Settings, config: ModelConfig, chosen: Choices) -> AdapterStore[Any]:
    """The adapters of the host, as the device's slots take them. On a CPU slots are not copies, and hold none."""
    num_slots = settings.max_loras if chosen.kernels == "triton" else 1

    def read(folder: Path) -> Any:
        spec = read_adapter(folder, config, settings.max_lora_rank)
        if chosen.kernels != "triton":
            return make_host_adapter(spec, chosen.ops, chosen.dtype)
        from chairlift.runner.cuda.adapters.pieces import make_slot_adapter

        return make_slot_adapter(spec, config)

    return AdapterStore(read, settings.lora_memory, settings.max_lora_rank, num_slots)
