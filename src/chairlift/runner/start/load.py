"""From settings and a model's source to a warm runner and its limits: the one entry of this layer.

On a GPU the cache gets the memory that weights and the largest step leave, measured; elsewhere a part of what is free.
"""

import logging
from dataclasses import dataclass, replace
from functools import partial

import torch
from llguidance import LLTokenizer

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.ports import AdapterMemory, DeviceLost, HostMemory, Runner, RunnerFailed, RunnerFull
from chairlift.core.step_forecast import StepTimes
from chairlift.models.shards import Rank
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
from chairlift.runner.cuda.step.graph_key import max_graphs
from chairlift.runner.fingerprint import fingerprint
from chairlift.runner.hooks import MovesBlocks, ShowsLogits
from chairlift.runner.kernels import compile_ahead, make_runner
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block, num_kv_tensors
from chairlift.runner.machine import hardware
from chairlift.runner.memory.budget import Budget
from chairlift.runner.memory.gpu import SHARE, GpuMemory
from chairlift.runner.memory.malloc import return_freed_memory
from chairlift.runner.memory.measure import take_memory
from chairlift.runner.memory.sizing import lowered, num_host_blocks, with_pool
from chairlift.runner.model import Decoder, PagedModel
from chairlift.runner.ranks.first import Crew, Ranks
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.start.choices import adapter_store, choose, load_fallback_model, load_model
from chairlift.runner.start.warm_up import time_recovery, warm_up
from chairlift.runner.weights.quantize import kept_as
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
    quantize: str  # as `kept_as` names it
    device: str
    kernels: str
    threads: int  # of each rank
    fingerprint: str | None = None  # None: not exact
    budget: Budget | None = None  # of a GPU
    num_host_blocks: int = 0  # to swap to
    host_memory: HostMemory | None = None  # these blocks, where they can be moved to other engines
    # Measured where preemption chooses between swapping and recomputing.
    block_copy_s: float = 0.0  # moving one block one way
    step_times: StepTimes = ()  # computing a prompt
    num_ranks: int = 1  # processes that compute the model together
    adapters: AdapterMemory | None = None  # None: requests have none
    makes: str = ""  # what is made instead of text

    @property
    def chosen(self) -> dict[str, str]:
        """Settings that were left to the machine or the model."""
        kernels, _, attention = self.kernels.partition(" and ")
        chosen = {name: str(getattr(self, name)) for name in ("device", "dtype", "kv_dtype", "quantize", "threads")}
        memory = "none" if self.budget is None else f"{SHARE:g}"
        return chosen | {"kernels": kernels, "attention": attention or kernels, "memory": memory}


def load_runner(settings: Settings, source: Source, config: ModelConfig, crew: Crew | None = None) -> Loaded:
    """crew: the other ranks, where several compute the model."""
    rank = Rank(0, settings.tensor_parallel)
    chosen = choose(settings, config, rank)
    device, dtype, target, kernels = chosen.device, chosen.dtype, chosen.target, chosen.kernels
    limits = chosen.limits
    # Every rank has as many blocks; those of the first are the largest.
    block_bytes = kv_bytes_per_block(chosen.config, limits.block_size, chosen.kv_dtype, chosen.kv_groups)
    gpu = _gpu_memory(settings, device)
    if gpu is not None:
        gpu.check_weights(chosen.config, dtype, chosen.quantize)
    if settings.has_adapters and config.fallback is not None:
        raise InvalidConfig("lora: adapters are not supported for models that transformers runs; leave --lora out")
    adapters = adapter_store(settings, config, chosen) if settings.has_adapters else None
    wait_for_kernels = compile_ahead(
        kernels, chosen.ops, device, dtype, chosen.kv_dtype, chosen.weight_format, chosen.config, limits,
        settings.exact, adapters,
    )  # fmt: skip
    matchers = Matchers(partial(_vocabulary, settings, source, config), config.vocab_size, 2 * limits.max_running)
    try:
        model: PagedModel
        ranks = None
        if config.fallback is not None:
            model = load_fallback_model(settings, source, chosen)
        else:
            model = decoder = load_model(settings, source, config, rank, chosen)
            wait_for_kernels()
            ranks = None if crew is None else Ranks.join(crew, decoder, settings, config, chosen)

        most_graphs = max_graphs(limits)

        def make(limits: Limits, num_host_blocks: int = 0, num_graphs: int = most_graphs) -> Runner:
            if target is not None:
                from chairlift.runner.mindspore.runner import make_runner as make_mindspore_runner

                assert isinstance(model, Decoder)
                return make_mindspore_runner(model, target, limits, num_host_blocks, matchers)
            if ranks is not None:
                return ranks.make_runner(chosen, limits, settings.exact, matchers, num_host_blocks, num_graphs)
            kv = KvCache(
                chosen.config, limits.num_blocks, limits.block_size, chosen.kv_dtype, device, num_host_blocks,
                chosen.kv_groups,
            )  # fmt: skip
            return make_runner(
                kernels, model, kv, device, limits, chosen.flash, settings.exact, matchers, num_graphs, adapters
            )

        budget = num_fitting = None
        num_graphs = most_graphs
        sharing = hardware.num_sharing(device, rank.count)
        if gpu is not None:
            budget, limits, num_graphs = gpu.measure(make, limits)
            if settings.num_blocks is None and settings.kv_memory is None:
                num_fitting = budget.num_blocks_within(
                    gpu.share, sharing * block_bytes, limits, num_kv_tensors(chosen.config, chosen.kv_groups)
                )
        wanted, free = limits.max_model_len, hardware.free_memory(device) // sharing
        limits = with_pool(limits, settings, source, block_bytes, num_fitting, free)
        if (line := lowered(limits, wanted)) is not None:
            _log.warning(line)
        num_host = num_host_blocks(settings, limits, rank.count * block_bytes)
        runner = make(limits, num_host, num_graphs)
        if gpu is not None:
            take_memory(runner, limits)
        warm_up(runner, limits, has_shapes=kernels not in ("native", "mindspore"))
        assert isinstance(runner, ShowsLogits)
        own_fingerprint = fingerprint(runner, limits, rank.count) if settings.exact else None
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
        hardware.dtype_name(chosen.kv_dtype),
        kept_as(config, chosen.quantize),
        device.type,
        f"mindspore:{target}" if target else kernels if chosen.flash is None else f"{kernels} and flashinfer",
        chosen.threads,
        fingerprint=own_fingerprint,
        budget=None if budget is None else replace(budget, kv=limits.num_blocks * block_bytes),
        num_host_blocks=num_host,
        host_memory=runner.host_memory if num_host and isinstance(runner, MovesBlocks) else None,
        block_copy_s=block_copy_s,
        step_times=step_times,
        num_ranks=rank.count,
        adapters=adapters,
    )


def _vocabulary(settings: Settings, source: Source, config: ModelConfig) -> LLTokenizer:
    return grammar_vocabulary(load_tokenizer(source, settings.tokenizer), config.vocab_size, config.eos_ids)


def _gpu_memory(settings: Settings, device: torch.device) -> GpuMemory | None:
    if device.type == "cuda":
        return GpuMemory(device, settings.memory or SHARE)
    if settings.memory is not None:
        _log.warning(
            "--memory %g is a fraction of a GPU's memory and is ignored on a CPU; use --kv-memory SIZE", settings.memory
        )
    return None
