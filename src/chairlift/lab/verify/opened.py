"""A model opened for verifying: loaded once, run in any world."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from chairlift.build import ResolvedModel, load, make_engine, rules_of
from chairlift.config.scheduler import Rules
from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.memory.preemption import Preemption
from chairlift.lab.verify.adapters import listed, names_of
from chairlift.lab.verify.cases import Case, Numbers, Prompt, fitted, prompts_of, random_prompts, requests_of
from chairlift.lab.verify.drive import OtherDepth, ScriptedRequest, WorldResult, drive
from chairlift.lab.verify.output import Keep, Outputs, keep
from chairlift.lab.verify.tolerance import Tolerance, tolerance_of
from chairlift.lab.verify.worlds import World, again, limits_in, script_of
from chairlift.models.spec import ModelConfig
from chairlift.runner.hooks import ShowsLogits
from chairlift.runner.kv_cache import kv_bytes_per_block
from chairlift.runner.machine import hardware
from chairlift.runner.memory.sizing import limits_without_pool
from chairlift.runner.start.load import Loaded
from chairlift.text.find import load_tokenizer

_BATCH = {"cpu": 16, "cuda": 300}  # the largest by default
_HOST_BLOCKS = 128  # for blocks that are swapped out
_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpec:
    """Which prompts to run, and how long."""

    prompts: Sequence[Prompt] | None = None  # None: the built-in ones
    num_prompts: int = 6  # of those
    num_tokens: int = 12
    seed: int = 0

    @property
    def num_rows(self) -> int:
        return self.num_tokens * (self.num_prompts if self.prompts is None else len(self.prompts))


@dataclass(slots=True)
class OpenedModel:
    model: ResolvedModel
    loaded: Loaded
    numbers: Numbers  # of adapters, which are in the host's memory

    @classmethod
    def open(cls, model: ResolvedModel) -> "OpenedModel":
        """With all adapters of `lora`."""
        opened = cls(model, load(model), {name: 1 + i for i, name in enumerate(names_of(model))})
        if (adapters := opened.loaded.adapters) is not None:
            for name, folder in model.settings.lora:
                adapters.read(opened.numbers[name], str(folder))
        return opened

    @property
    def runner(self) -> ShowsLogits:
        runner = self.loaded.runner
        assert isinstance(runner, ShowsLogits)
        return runner

    @property
    def tolerance(self) -> Tolerance:
        return tolerance_of(self.loaded.dtype, self.loaded.kv_dtype, self.loaded.quantize)

    def about(self) -> dict[str, Any]:
        """What the bits depend on."""
        loaded, settings = self.loaded, self.model.settings
        return {
            "model": self.model.name,
            "dtype": loaded.dtype,
            "kv_dtype": "" if loaded.kv_dtype == loaded.dtype else loaded.kv_dtype,
            "quantize": "" if loaded.quantize == "none" else loaded.quantize,
            "device": loaded.device,
            "kernels": f"{loaded.kernels} kernels",
            "exact": "exact" if settings.exact else "",
            "load_format": "random weights" if settings.load_format == "dummy" else "",
            "adapters": listed(names_of(self.model)),
        }

    def as_configured(self, cases: Sequence[Case], keep: Keep = keep) -> Outputs:
        """All cases at once under the settings' own rules."""
        engine = make_engine(self.loaded.runner, self.loaded.limits, rules_of(self.model.settings, self.loaded))
        groups, wanted = requests_of(cases, numbers=self.numbers)
        return drive(engine, self.runner, list(map(ScriptedRequest, groups)), wanted, keep).outputs

    def alone(self, cases: Sequence[Case]) -> Outputs:
        """One sample at a time."""
        outputs: Outputs = {}
        groups, wanted = requests_of(cases, numbers=self.numbers)
        for request in chain(*groups):
            engine = make_engine(self.loaded.runner, self.loaded.limits, Rules(prefix_cache=False))
            key = {request.id: wanted[request.id]}
            outputs |= drive(engine, self.runner, [ScriptedRequest((request,))], key).outputs
        return outputs

    def among(self, world: World, cases: Sequence[Case], rng: random.Random) -> WorldResult:
        """All cases in a world."""
        loaded = self.loaded
        script, wanted = script_of(world, cases, loaded.limits, rng, self.numbers)
        rules = Rules(
            policy=world.policy,
            prefill=world.prefill,
            preemption=Preemption(mode=world.preemption, num_host_blocks=loaded.num_host_blocks),
            prefix_cache=world.has_prefix_cache,
        )
        runner = OtherDepth(loaded.runner, world.depth) if world.depth else loaded.runner
        engine = make_engine(runner, limits_in(world, loaded.limits), rules)
        _use_graphs(loaded, world.has_graphs)
        try:
            if world.is_warm:
                drive(engine, self.runner, again(script), {})
            return drive(engine, self.runner, script, wanted)
        finally:
            _use_graphs(loaded, True)


def has_graphs(loaded: Loaded) -> bool:
    return hasattr(loaded.runner, "uses_graphs")


def _use_graphs(loaded: Loaded, is_on: bool) -> None:
    if has_graphs(loaded):
        loaded.runner.uses_graphs = is_on  # type: ignore[attr-defined]


def prompts_for(model: ResolvedModel, spec: PromptSpec) -> list[list[int]]:
    """As tokens; random ones for random weights, which need no tokenizer."""
    settings, config = model.settings, model.config
    max_model_len = min(settings.max_model_len or config.max_model_len, config.max_model_len)
    if spec.prompts is None and settings.load_format == "dummy":
        drawn = random_prompts(config.vocab_size, spec.num_prompts, spec.seed)
        return fitted(drawn, spec.num_tokens, max_model_len)
    if spec.prompts is not None and not any(isinstance(prompt, str) for prompt in spec.prompts):
        return [list(prompt) for prompt in spec.prompts if not isinstance(prompt, str)]
    encode = load_tokenizer(model.source, settings.tokenizer).encode
    if spec.prompts is not None:
        return [encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in spec.prompts]
    return fitted(prompts_of(encode, spec.num_prompts), spec.num_tokens, max_model_len)


def with_room(settings: Settings, config: ModelConfig, cases: Sequence[Case]) -> Settings:
    """Settings with memory for every world and no more, unless they name a size: two models must fit side by side."""
    device, size = hardware.pick_device(settings.device), settings.block_size
    limits = limits_without_pool(settings, config, device)
    batch = settings.max_running or min(_BATCH.get(device.type, 16), limits.max_running)
    num_tokens = max(case.params.max_tokens or 1 for case in cases)
    num_blocks = settings.num_blocks
    if num_blocks is None and settings.kv_memory is None:
        # The cases, and neighbours with prompts of two steps in all.
        pages = limits.pages
        own = sum(case.params.n * pages.num_in_prompt(len(case.prompt) + num_tokens) for case in cases)
        others = -(-(2 * limits.max_step_tokens + batch * (num_tokens + size + 4)) // size)
        num_blocks = own + others * pages.per_block
    block_bytes = kv_bytes_per_block(config, size, torch.float32)  # the widest type
    host_memory = settings.host_memory or _HOST_BLOCKS * block_bytes
    return replace(settings, max_running=batch, num_blocks=num_blocks, preemption="swap", host_memory=host_memory)


def check_memory(num_rows: float, vocab_size: int) -> None:
    """Refuses to keep more logits than there is memory for."""
    wanted = num_rows * vocab_size * 4
    free = hardware.free_memory(hardware.pick_device("cpu"))
    if wanted > free // 2:
        raise InvalidConfig(
            f"{num_rows:,.0f} rows of {vocab_size:,} logits take {wanted / _GIB:.1f} GiB, "
            f"and {free / _GIB:.1f} GiB are free; give less with --num-prompts or --tokens"
        )
