"""A tiny real decoder with random weights in an engine, for showing what scheduling and devices must not change."""

from collections import Counter
from typing import Any

import torch
from llguidance import LLTokenizer

from chairlift.core.engine import Engine
from chairlift.core.events import Admitted, Event, Preempted, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Drafter, Runner
from chairlift.core.request import Request
from chairlift.core.scheduling.invariants import check
from chairlift.core.scheduling.preemption import Preemption
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.native.tape import TapedDecoder
from chairlift.runner.ops import Ops
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.clocks import CountingClock

SHAPE: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
    "head_dim": 8, "intermediate_size": 48, "vocab_size": 97, "max_model_len": 64, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip
CONFIG = uniform_model(**SHAPE)

Arrivals = dict[int, list[tuple[Request, ...]]]  # by step
Tokens = dict[RequestId, list[int]]


def drive(scheduler: Scheduler, runner: Runner, arrivals: Arrivals) -> tuple[Tokens, Counter[type[Event] | str]]:
    """Each request's tokens, and how often each kind of event came ("hit": admitted with cached tokens; "swap":
    preempted with its blocks moved out; "more": a token after another of the same step)."""
    engine = Engine(scheduler, runner, CountingClock())
    tokens: Tokens = {}
    kinds: Counter[type[Event] | str] = Counter()
    last: dict[RequestId, float] = {}
    step = 0
    while engine.has_work or step <= max(arrivals):
        for samples in arrivals.get(step, ()):
            engine.add(samples)
        for event in engine.step():
            kinds[type(event)] += 1
            kinds["swap"] += isinstance(event, Preempted) and event.is_swapped
            kinds["hit"] += isinstance(event, Admitted) and event.num_cached > 0
            if isinstance(event, Token):
                tokens.setdefault(event.request, []).append(event.token)
                kinds["more"] += last.get(event.request) == event.at
                last[event.request] = event.at
        check(scheduler)
        step += 1
    return tokens, kinds


class ModelWorld:
    def __init__(
        self, dtype: torch.dtype, device: str = "cpu", config: ModelConfig = CONFIG, ops: Ops | None = None,
        kv_dtype: torch.dtype | None = None, vocabulary: LLTokenizer | None = None, max_followed: int = 4,
    ) -> None:  # fmt: skip
        """vocabulary: for answers that are held to a shape, of which matchers follow `max_followed` at a time."""
        self._vocabulary, self._max_followed = vocabulary, max_followed
        self._config, self._kv_dtype, self._device = config, kv_dtype or dtype, torch.device(device)
        model = build_model(config, ops or TorchOps(), DummyTensors(config), dtype, self._device, config.max_model_len)
        self._model = TapedDecoder(model, ops.calls) if isinstance(ops, NativeOps) else model

    def run(
        self, limits: Limits, arrivals: Arrivals, preemption: Preemption | None = None, drafter: Drafter | None = None
    ) -> tuple[Tokens, Counter[type[Event] | str]]:
        """As `drive`."""
        preemption = preemption or Preemption()
        scheduler = Scheduler(limits, Fcfs(), preemption=preemption, drafter=drafter)
        return drive(scheduler, self._runner(limits, preemption.num_host_blocks), arrivals)

    def _runner(self, limits: Limits, num_host_blocks: int) -> Runner:
        config, dtype = self._config, self._kv_dtype
        cache = KvCache(config, limits.num_blocks, limits.block_size, dtype, self._device, num_host_blocks)
        return TorchRunner(self._model, cache, self._device, self._matchers())

    def _matchers(self) -> Matchers | None:
        if self._vocabulary is None:
            return None
        return Matchers(lambda: self._vocabulary, self._config.vocab_size, self._max_followed)

    def run_apart(self, arrivals: Arrivals) -> Tokens:
        """What each gets with the machine to itself; a search needs all its members."""
        tokens: Tokens = {}
        for group in (group for groups in arrivals.values() for group in groups):
            apart: list[tuple[Request, ...]] = [group] if group[0].params.beam_width else [(one,) for one in group]
            for together in apart:
                size = len(together)
                tokens |= self.run(world_limits(16 * size, 4, size, 64), {0: [together]})[0]
        return tokens


def world_limits(num_blocks: int, block_size: int, max_running: int, max_step_tokens: int) -> Limits:
    return Limits(
        vocab_size=CONFIG.vocab_size, max_model_len=CONFIG.max_model_len, block_size=block_size, num_blocks=num_blocks,
        max_running=max_running, max_step_tokens=max_step_tokens,
    )  # fmt: skip
