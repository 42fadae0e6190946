"""The limits of a run: those that settings and model give, and how large a pool of blocks there is memory for."""

from dataclasses import replace

import torch

from chairlift.config.model import ModelConfig
from chairlift.config.settings import Settings
from chairlift.config.source import Source
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.runner import hardware
from chairlift.runner.measure import largest_count

_MIB = 2**20
_EMBEDDED_KV_BYTES = 256 * _MIB
# Requests and tokens that share a step where nobody says otherwise: beyond these a step only gets longer.
_MAX_RUNNING = {"cpu": 128, "cuda": 512}
_MAX_STEP_TOKENS = {"cpu": 512, "cuda": 4096}


def limits_without_pool(settings: Settings, config: ModelConfig, device: torch.device) -> Limits:
    """All that does not depend on memory; the pool is a single block."""
    max_running = settings.max_running or min(_MAX_RUNNING[device.type], settings.max_step_tokens or 1 << 30)
    return Limits(
        vocab_size=config.vocab_size,
        max_model_len=_max_model_len(settings, config),
        block_size=settings.block_size,
        num_blocks=1,
        max_running=max_running,
        max_step_tokens=settings.max_step_tokens or max(_MAX_STEP_TOKENS[device.type], max_running),
        max_step_prompts=settings.max_step_prompts,
    )


def with_pool(
    limits: Limits,
    settings: Settings,
    source: Source,
    block_bytes: int,
    num_measured: int | None = None,
    free: int | None = None,
) -> Limits:
    """As many blocks as were asked for, else as were measured to fit, else what a part of the free memory holds.
    `free`: bytes of the host's memory beside the weights; None: what there is now."""
    if settings.num_blocks is not None:
        return replace(limits, num_blocks=settings.num_blocks)
    if settings.kv_memory is not None or num_measured is None:
        num_blocks = _num_blocks_in(settings.kv_memory or _free_part(source, free), block_bytes)
    else:
        num_blocks = num_measured
    # More than all running requests at full length can never be used.
    most = limits.max_running * -(-limits.max_model_len // limits.block_size)
    return replace(limits, num_blocks=min(num_blocks, most))


def with_step(limits: Limits, num_tokens: int) -> Limits:
    """With steps of no more tokens than there is memory for, but one for each running request."""
    num_tokens = max(num_tokens, limits.max_running)
    return limits if num_tokens >= largest_count(limits) else replace(limits, max_step_tokens=num_tokens)


def _num_blocks_in(kv_bytes: int, block_bytes: int) -> int:
    if kv_bytes < block_bytes:
        raise InvalidConfig(
            f"{kv_bytes / _MIB:.1f} MiB for the KV cache do not hold one block of {block_bytes / _MIB:.1f} MiB; "
            "give more with --kv-memory or make blocks smaller with --block-size"
        )
    return kv_bytes // block_bytes


def num_host_blocks(settings: Settings, limits: Limits, block_bytes: int) -> int:
    """Places outside for blocks that are swapped out."""
    if settings.preemption == "recompute":
        return 0
    if settings.host_memory is None:
        return min(limits.num_blocks, hardware.free_memory(torch.device("cpu")) // 4 // block_bytes)
    if settings.host_memory < block_bytes:
        raise InvalidConfig(
            f"host_memory {settings.host_memory / _MIB:.1f} MiB does not hold one block of {block_bytes / _MIB:.1f} MiB"
        )
    return settings.host_memory // block_bytes


def _free_part(source: Source, free: int | None) -> int:
    part = (hardware.free_memory(torch.device("cpu")) if free is None else free) // 4
    return min(part, _EMBEDDED_KV_BYTES) if source.is_embedded else part


def _max_model_len(settings: Settings, config: ModelConfig) -> int:
    wanted = settings.max_model_len or config.max_model_len
    if wanted > config.max_model_len:
        if settings.compat.can_clip_max_model_len:
            return config.max_model_len
        raise InvalidConfig(f"max_model_len {wanted} is more than the model's context of {config.max_model_len}")
    return wanted
