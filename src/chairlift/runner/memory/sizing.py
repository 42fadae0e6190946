"""The limits of a run, from settings and model, and the number of blocks that fit the memory."""

from collections import defaultdict
from dataclasses import replace

import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.moving import host_blocks_of, host_blocks_to_move
from chairlift.models.kv_groups import DEFAULT_SIZES, Sizes, kv_groups
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.runner.machine import hardware
from chairlift.runner.memory.gpu import SHARE

_MIB = 2**20
_EMBEDDED_KV_BYTES = 1024 * _MIB
# Requests and tokens of a step by default: beyond these a step only takes longer. A large GPU takes twice the requests
# of others, whose logits would take much of what they have for keys and values.
_MAX_RUNNING = defaultdict(lambda: 128, cuda=512)
_LARGE = 64 * 2**30  # bytes of a GPU that may be used
_MAX_STEP_TOKENS = defaultdict(lambda: 512, cuda=4096)


def limits_without_pool(
    settings: Settings, config: ModelConfig, device: torch.device, can_group: bool = True, memory: int | None = None,
    sizes: Sizes = DEFAULT_SIZES,
) -> Limits:  # fmt: skip
    """The limits that do not depend on the memory left by a model; the pool is a single block. can_group: the runner
    can release what lies behind windows. memory: of a GPU that is elsewhere. sizes: of numbers, for states."""
    max_running = settings.max_running or _max_running(settings, device, memory)
    max_model_len = _max_model_len(settings, config)
    groups = kv_groups(config, can_group, sizes)
    if settings.block_size % groups.fit.pages_a_block:
        raise InvalidConfig(
            f"block_size {settings.block_size}: {config.architecture} divides a block among {groups.fit.pages_a_block} "
            "pages of layers with a window; use a multiple of it"
        )
    return Limits(
        vocab_size=config.vocab_size,
        max_model_len=max_model_len,
        block_size=settings.block_size,
        num_blocks=1,
        max_running=max_running,
        max_step_tokens=settings.max_step_tokens or max(_MAX_STEP_TOKENS[device.type], max_running),
        max_step_prompts=settings.max_step_prompts,
        groups=groups.beside(max_model_len),
        num_adapter_slots=settings.max_loras if settings.has_adapters else 0,
    )


def _max_running(settings: Settings, device: torch.device, memory: int | None) -> int:
    most = _MAX_RUNNING[device.type]
    if device.type == "cuda":
        memory = hardware.total_memory(device) if memory is None else memory
        most *= 2 if (settings.memory or SHARE) * memory >= _LARGE else 1
    return min(most, settings.max_step_tokens or most)


def with_pool(
    limits: Limits, settings: Settings, source: Source, block_bytes: int, num_measured: int | None, free: int
) -> Limits:
    """As many blocks as asked for, else as measured to fit, else a part of the free memory; and no longer requests than
    they hold. `free`: bytes beside the weights."""
    if settings.num_blocks is not None:
        return _within_pool(replace(limits, num_blocks=settings.num_blocks), settings)
    full_length = limits.pages.num_in_prompt(limits.max_model_len)
    if settings.kv_memory is not None or num_measured is None:
        kv_bytes = settings.kv_memory or _free_part(source, free, full_length * block_bytes)
        if kv_bytes < block_bytes:
            raise InvalidConfig(
                f"{kv_bytes / _MIB:.1f} MiB for the KV cache do not hold one block of {block_bytes / _MIB:.1f} MiB; "
                "give more with --kv-memory or make blocks smaller with --block-size"
            )
        num_blocks = kv_bytes // block_bytes
    else:
        num_blocks = num_measured
    # More than all running requests at full length can never be used.
    return _within_pool(replace(limits, num_blocks=min(num_blocks, limits.max_running * full_length)), settings)


def lowered(limits: Limits, wanted: int) -> str | None:
    """The warning where the pool does not hold requests of the wanted length."""
    if limits.max_model_len >= wanted:
        return None
    return (
        f"max_model_len is {limits.max_model_len} instead of {wanted}: the KV cache holds no more; "
        "--kv-memory, --num-blocks or, on a GPU, --memory makes it larger"
    )


def num_host_blocks(settings: Settings, limits: Limits, block_bytes: int) -> int:
    """Blocks of host memory to swap to, and to move requests through."""
    if settings.preemption == "recompute" and not settings.can_move_kv:
        return 0
    if settings.host_memory is None:
        free = hardware.free_memory(torch.device("cpu")) // 4
        if settings.preemption == "recompute":
            free = min(free // max(1, settings.replicas), host_blocks_to_move(limits, block_bytes) * block_bytes)
        return min(limits.num_blocks, free // block_bytes)
    return host_blocks_of(settings.host_memory, block_bytes)


def _free_part(source: Source, free: int, full_length: int) -> int:
    """A quarter, or up to half where a request of full length takes that many bytes."""
    part = min(free // 4, _EMBEDDED_KV_BYTES) if source.is_embedded else free // 4
    return max(part, min(full_length, free // 2))


def _within_pool(limits: Limits, settings: Settings) -> Limits:
    """Where the pool holds no request of full length: refuses a length that was asked for, lowers the model's."""
    if limits.max_model_len <= limits.max_pool_tokens:
        return limits
    if limits.max_pool_tokens == 0:
        raise InvalidConfig(
            f"num_blocks {limits.num_blocks} hold no token: of this model one takes "
            f"{limits.pages.num_in_prompt(1)} blocks; raise --num-blocks, --kv-memory or, on a GPU, --memory"
        )
    if settings.max_model_len is not None and not settings.compat.can_clip_max_model_len:
        raise InvalidConfig(
            f"max_model_len {limits.max_model_len} is more than the {limits.max_pool_tokens} tokens that the KV cache "
            "holds; lower --max-model-len, or raise --kv-memory, --num-blocks or, on a GPU, --memory"
        )
    return replace(limits, max_model_len=limits.max_pool_tokens)


def _max_model_len(settings: Settings, config: ModelConfig) -> int:
    wanted = settings.max_model_len or config.max_model_len
    if wanted > config.max_model_len:
        if settings.compat.can_clip_max_model_len:
            return config.max_model_len
        raise InvalidConfig(
            f"max_model_len {wanted} is more than the model's context of {config.max_model_len}; lower --max-model-len"
        )
    return wanted
