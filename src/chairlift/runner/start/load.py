"""From settings and a model's source to a warm runner and its limits: the one entry of this layer.

On a GPU the cache gets the memory that weights and the largest step leave, measured; elsewhere a part of what is free.
"""

import logging
from dataclasses import dataclass, replace
from functools import partial

import torch
from llguidance import LLTokenizer

from chairlift.config.gguf.header import read_header
from chairlift.config.model import ModelConfig
from chairlift.config.settings import Settings
from chairlift.config.source import Source
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.ports import DeviceLost, Runner, RunnerFailed, RunnerFull
from chairlift.core.step_times import StepTimes
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS
from chairlift.runner.fingerprint import fingerprint
from chairlift.runner.hooks import ShowsLogits
from chairlift.runner.kernels import (
    check_exact,
    compile_ahead,
    fastest,
    make_ops,
    make_runner,
    pick_attention,
    pick_kernels,
    pick_kv_dtype,
    why_missing,
)
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block
from chairlift.runner.machine import hardware
from chairlift.runner.memory.budget import Budget
from chairlift.runner.memory.gpu import SHARE, GpuMemory
from chairlift.runner.memory.malloc import return_freed_memory
from chairlift.runner.memory.sizing import limits_without_pool, lowered, num_host_blocks, with_pool
from chairlift.runner.mindspore.target import pick_dtype as pick_mindspore_dtype
from chairlift.runner.mindspore.target import start as start_mindspore
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.start.warm_up import time_recovery, warm_up
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.ckpt import CkptTensors
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.gguf import GgufTensors
from chairlift.runner.weights.hf import HfTensors
from chairlift.runner.weights.quantize import STORED, pick_quantize, pick_weight_format
from chairlift.runner.weights.source import TensorSource
from chairlift.text.find import load_tokenizer
from chairlift.text.structured.vocabulary import grammar_vocabulary

_GIVE_LESS = "give less with --kv-memory, --num-blocks or --max-step-tokens, or "
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    runner: Runner
    limits: Limits
    dtype: str
    kv_dtype: str
    quantize: str  # none, fp8, int8, int4, or the type of a file's blocks, such as Q4_1
    device: str
    kernels: str
    threads: int
    fingerprint: str | None = None  # None: not exact
    budget: Budget | None = None  # of a GPU
    num_host_blocks: int = 0  # to swap to
    # Measured where preemption chooses between swapping and recomputing.
    block_copy_s: float = 0.0  # moving one block one way
    step_times: StepTimes = ()  # computing a prompt


def load_runner(settings: Settings, source: Source, config: ModelConfig) -> Loaded:
    device = hardware.pick_device(settings.device)
    # The products of weights in fp8 come out in bfloat16.
    stored = "bfloat16" if settings.quantize == "fp8" else config.dtype
    threads = settings.threads or hardware.num_cpus()
    torch.set_num_threads(threads)
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
    # Only our own attention is exact.
    attention = "triton" if settings.exact and kernels == "triton" else settings.attention
    flash = pick_attention(attention, kernels, device, dtype, kv_dtype, config, settings.block_size)
    limits = limits_without_pool(settings, config, device)
    block_bytes = kv_bytes_per_block(config, limits.block_size, kv_dtype)
    gpu = _gpu_memory(settings, device)
    if gpu is not None:
        gpu.check_weights(config, dtype, quantize)
    ops = make_ops(own, threads, settings.exact)
    weight_format = pick_weight_format(quantize, kernels, dtype, config, ops)
    wait_for_kernels = compile_ahead(
        kernels, ops, device, dtype, kv_dtype, weight_format, config, limits, settings.exact
    )
    matchers = Matchers(partial(_vocabulary, settings, source, config), config.vocab_size, 2 * limits.max_running)
    try:
        tensors = open_tensors(settings, source, config, dtype, device, threads)
        model = build_model(config, ops, tensors, dtype, device, limits.max_model_len, weight_format)
        del tensors  # unmaps the file
        wait_for_kernels()

        def make(limits: Limits, num_host_blocks: int = 0, max_graphs: int = MAX_GRAPHS) -> Runner:
            if target is not None:
                from chairlift.runner.mindspore.runner import make_runner as make_mindspore_runner

                return make_mindspore_runner(model, target, limits, num_host_blocks, matchers)
            kv = KvCache(config, limits.num_blocks, limits.block_size, kv_dtype, device, num_host_blocks)
            return make_runner(kernels, model, kv, device, limits, flash, settings.exact, matchers, max_graphs)

        budget = num_fitting = None
        max_graphs = MAX_GRAPHS
        if gpu is not None:
            budget, limits, max_graphs = gpu.measure(make, limits)
            if settings.num_blocks is None and settings.kv_memory is None:
                num_fitting = budget.num_blocks_within(
                    gpu.share, block_bytes, limits, num_tensors=2 * config.num_layers
                )
        wanted, free = limits.max_model_len, hardware.free_memory(device)
        limits = with_pool(limits, settings, source, block_bytes, num_fitting, free)
        if (line := lowered(limits, wanted)) is not None:
            _log.warning(line)
        num_host = num_host_blocks(settings, limits, block_bytes)
        runner = make(limits, num_host, max_graphs)
        warm_up(runner, limits, has_shapes=kernels not in ("native", "mindspore"))
        assert isinstance(runner, ShowsLogits)
        own_fingerprint = fingerprint(runner, limits) if settings.exact else None
        has_choice = settings.preemption == "auto"
        block_copy_s, step_times = time_recovery(runner, limits, num_host) if has_choice else (0.0, ())
        return_freed_memory()
    except (RunnerFailed, DeviceLost, RuntimeError, MemoryError) as error:
        first = (str(error) or "out of memory").splitlines()[0]
        where = device.type if target is None else f"mindspore:{target}"
        what = f"{source.path}: cannot be run on {where} in {hardware.dtype_name(dtype)}"
        less = _GIVE_LESS if isinstance(error, RunnerFull | torch.OutOfMemoryError) else ""
        way_out = "" if where == "cpu" else f"; {less}use --device cpu"
        raise InvalidConfig(f"{what}: {first}{way_out}") from error
    return Loaded(
        runner,
        limits,
        hardware.dtype_name(dtype),
        hardware.dtype_name(kv_dtype),
        config.blocks.type_name if config.blocks and quantize == STORED else quantize,
        device.type,
        f"mindspore:{target}" if target else kernels if flash is None else f"{kernels} and flashinfer",
        threads,
        fingerprint=own_fingerprint,
        budget=None if budget is None else replace(budget, kv=limits.num_blocks * block_bytes),
        num_host_blocks=num_host,
        block_copy_s=block_copy_s,
        step_times=step_times,
    )


def _vocabulary(settings: Settings, source: Source, config: ModelConfig) -> LLTokenizer:
    return grammar_vocabulary(load_tokenizer(source, settings.tokenizer), config.vocab_size, config.eos_ids)


def _gpu_memory(settings: Settings, device: torch.device) -> GpuMemory | None:
    if device.type == "cuda":
        return GpuMemory(device, settings.memory or SHARE)
    if settings.memory is not None:
        _log.warning("memory %g is a share of a GPU's and means nothing on a CPU; see --kv-memory", settings.memory)
    return None


def open_tensors(
    settings: Settings, source: Source, config: ModelConfig, dtype: torch.dtype, device: torch.device, threads: int
) -> TensorSource:
    """The source of the weights; random ones are made in this type, on this device."""
    if settings.load_format == "dummy":
        return DummyTensors(config, dtype, device)
    if source.kind == "gguf":
        return GgufTensors(read_header(source.path), threads)
    return CkptTensors(source.path) if source.kind == "ckpt" else HfTensors(source.path)
