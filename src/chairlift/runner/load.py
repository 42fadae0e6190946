"""From settings and a model's place to a warmed runner and the limits it can hold to: the one entry of this layer."""

from contextlib import suppress
from ctypes import CDLL
from dataclasses import dataclass

import torch

from chairlift.config.gguf_header import read_header
from chairlift.config.model import ModelConfig
from chairlift.config.settings import Settings
from chairlift.config.source import Source
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.ports import Runner, RunnerFailed
from chairlift.runner import hardware
from chairlift.runner.kernels import (
    make_ops,
    make_runner,
    pick_attention,
    pick_kernels,
    pick_kv_dtype,
    pick_layer_weight,
)
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block
from chairlift.runner.warm_up import time_recovery, warm_up
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.source import TensorSource

_MIB = 2**20
_EMBEDDED_KV_BYTES = 256 * _MIB
_CUDA_RESERVE = 1024 * _MIB  # activations and what the allocator cannot use
# Requests and tokens that share a step where nobody says otherwise: beyond these a step only gets longer.
_MAX_RUNNING = {"cpu": 128, "cuda": 512}
_MAX_STEP_TOKENS = {"cpu": 512, "cuda": 4096}


@dataclass(frozen=True, slots=True)
class Loaded:
    runner: Runner
    limits: Limits
    dtype: str
    kv_dtype: str
    quantize: str  # "none", or what the layers' weights are kept in
    device: str
    kernels: str
    threads: int
    num_host_blocks: int = 0  # places for blocks that are swapped out
    # Measured where the engine weighs swapping against computing again; else 0.
    block_copy_s: float = 0.0  # moving one block one way
    token_s: float = 0.0  # computing one token of a prompt


def load_runner(settings: Settings, source: Source, config: ModelConfig) -> Loaded:
    device = hardware.pick_device(settings.device)
    # The products of weights in fp8 come out in bfloat16, whatever the weights were stored in.
    stored = config.dtype if settings.quantize == "none" else "bfloat16"
    dtype = hardware.resolve_dtype(settings.dtype, device, stored)
    threads = settings.threads or hardware.num_cpus()
    torch.set_num_threads(threads)
    kernels = pick_kernels(settings.kernels, device, dtype, config.head_dim)
    kv_dtype = pick_kv_dtype(settings.kv_dtype, kernels, dtype)
    layer_weight = pick_layer_weight(settings.quantize, kernels, dtype, config)
    flash = pick_attention(settings.attention, kernels, device, dtype, kv_dtype, config, settings.block_size)
    max_model_len = _max_model_len(settings, config)
    try:
        tensors = _tensors(settings, source, config, threads)
        model = build_model(config, make_ops(kernels, threads), tensors, dtype, device, max_model_len, layer_weight)
        del tensors  # unmaps the file
        if device.type == "cuda":
            torch.cuda.empty_cache()  # of matrices that were read only to be rounded
        limits = _limits(settings, source, config, kv_dtype, device, max_model_len)
        num_host_blocks = _num_host_blocks(settings, config, limits, kv_dtype)
        kv = KvCache(config, limits.num_blocks, limits.block_size, kv_dtype, device, num_host_blocks)
        runner = make_runner(kernels, model, kv, device, limits, flash)
        warm_up(runner, limits)
        has_choice = settings.preemption == "auto"
        block_copy_s, token_s = time_recovery(runner, limits, num_host_blocks) if has_choice else (0.0, 0.0)
        _return_freed_memory()
    except (RunnerFailed, RuntimeError, MemoryError) as error:
        first = (str(error) or "out of memory").splitlines()[0]
        raise InvalidConfig(
            f"{source.path}: cannot be run on {device.type} in {hardware.dtype_name(dtype)}: {first}"
        ) from error
    return Loaded(
        runner,
        limits,
        hardware.dtype_name(dtype),
        hardware.dtype_name(kv_dtype),
        settings.quantize,
        device.type,
        kernels if flash is None else f"{kernels} and flashinfer",
        threads,
        num_host_blocks=num_host_blocks,
        block_copy_s=block_copy_s,
        token_s=token_s,
    )


def _return_freed_memory() -> None:
    """Loading leaves the C library with much freed memory, which it would keep; glibc can be asked for it."""
    with suppress(OSError, AttributeError):
        CDLL(None).malloc_trim(0)


def _tensors(settings: Settings, source: Source, config: ModelConfig, threads: int) -> TensorSource:
    if settings.load_format == "dummy":
        return DummyTensors()
    if source.kind == "gguf":
        return GgufTensors(read_header(source.path), config, threads)
    return HfTensors(source.path)


def _max_model_len(settings: Settings, config: ModelConfig) -> int:
    wanted = settings.max_model_len or config.max_model_len
    if wanted > config.max_model_len:
        if settings.compat.can_clip_max_model_len:
            return config.max_model_len
        raise InvalidConfig(f"max_model_len {wanted} is more than the model's context of {config.max_model_len}")
    return wanted


def _limits(
    settings: Settings, source: Source, config: ModelConfig, kv_dtype: torch.dtype, device: torch.device, max_len: int
) -> Limits:
    max_running = settings.max_running or min(_MAX_RUNNING[device.type], settings.max_step_tokens or 1 << 30)
    max_step_tokens = settings.max_step_tokens or max(_MAX_STEP_TOKENS[device.type], max_running)
    num_blocks = settings.num_blocks
    if num_blocks is None:
        block_bytes = kv_bytes_per_block(config, settings.block_size, kv_dtype)
        kv_bytes = settings.kv_memory or _kv_bytes(device, source)
        # More than all running requests at full length can never be used.
        num_blocks = min(kv_bytes // block_bytes, max_running * -(-max_len // settings.block_size))
        if num_blocks < 1:
            raise InvalidConfig(
                f"{kv_bytes / _MIB:.1f} MiB for the KV cache do not hold one block of {block_bytes / _MIB:.1f} MiB; "
                "give more with --kv-memory or make blocks smaller with --block-size"
            )
    return Limits(
        vocab_size=config.vocab_size,
        max_model_len=max_len,
        block_size=settings.block_size,
        num_blocks=num_blocks,
        max_running=max_running,
        max_step_tokens=max_step_tokens,
        max_step_prompts=settings.max_step_prompts,
    )


def _num_host_blocks(settings: Settings, config: ModelConfig, limits: Limits, kv_dtype: torch.dtype) -> int:
    if settings.preemption == "recompute":
        return 0
    block_bytes = kv_bytes_per_block(config, limits.block_size, kv_dtype)
    if settings.host_memory is None:
        return min(limits.num_blocks, hardware.free_memory(torch.device("cpu")) // 4 // block_bytes)
    if settings.host_memory < block_bytes:
        raise InvalidConfig(
            f"host_memory {settings.host_memory / _MIB:.1f} MiB does not hold one block of {block_bytes / _MIB:.1f} MiB"
        )
    return settings.host_memory // block_bytes


def _kv_bytes(device: torch.device, source: Source) -> int:
    """After the weights are in place."""
    free = hardware.free_memory(device)
    if device.type == "cuda":
        return max(0, int(0.9 * free) - _CUDA_RESERVE)
    return min(free // 4, _EMBEDDED_KV_BYTES) if source.is_embedded else free // 4
