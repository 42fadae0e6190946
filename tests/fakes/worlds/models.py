"""A tiny real decoder with random weights in worlds, for showing what scheduling and devices must not change."""

from typing import Any

import torch
from llguidance import LLTokenizer

from chairlift.core.limits import Limits
from chairlift.core.ports import Runner
from chairlift.core.request import Request
from chairlift.models.spec import ModelConfig, uniform_model
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.native.ops import NativeOps
from chairlift.runner.native.tape import taped_decoder
from chairlift.runner.ops import Ops
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.worlds.world import Arrivals, Tokens, World

SHAPE: dict[str, Any] = {
    "architecture": "LlamaForCausalLM", "hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
    "head_dim": 8, "intermediate_size": 48, "vocab_size": 97, "max_model_len": 64, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip
CONFIG = uniform_model(**SHAPE)


class TinyModel:
    def __init__(
        self, dtype: torch.dtype, device: str = "cpu", config: ModelConfig = CONFIG, ops: Ops | None = None,
        kv_dtype: torch.dtype | None = None, vocabulary: LLTokenizer | None = None, max_followed: int = 4,
        like: "TinyModel | None" = None,
    ) -> None:  # fmt: skip
        """vocabulary: for answers that are held to a shape, of which matchers follow `max_followed` at a time.
        like: what requests must get the tokens of, if not of this one."""
        self._vocabulary, self._max_followed, self._like = vocabulary, max_followed, like
        self._config, self._kv_dtype, self._device = config, kv_dtype or dtype, torch.device(device)
        model = build_model(config, ops or TorchOps(), DummyTensors(config), dtype, self._device, config.max_model_len)
        self._model = taped_decoder(model, ops.calls) if isinstance(ops, NativeOps) else model
        self._known: dict[tuple[Request, ...], Tokens] = {}

    def make(self, world: World) -> Runner:
        num_host_blocks, size = world.preemption.num_host_blocks, world.limits.block_size
        cache = KvCache(self._config, world.limits.num_blocks, size, self._kv_dtype, self._device, num_host_blocks)
        return TorchRunner(self._model, cache, self._device, self._matchers())

    def _matchers(self) -> Matchers | None:
        if self._vocabulary is None:
            return None
        return Matchers(lambda: self._vocabulary, self._config.vocab_size, self._max_followed)

    def alone(self, arrivals: Arrivals, limits: Limits | None = None) -> Tokens:
        """A search needs all its members."""
        if self._like is not None:
            return self._like.alone(arrivals, limits)
        tokens: Tokens = {}
        for group in (group for groups in arrivals.values() for group in groups):
            apart: list[tuple[Request, ...]] = [group] if group[0].params.beam_width else [(one,) for one in group]
            for together in apart:
                tokens |= self._together(together)
        return tokens

    def _together(self, samples: tuple[Request, ...]) -> Tokens:
        if samples not in self._known:
            size, length = len(samples), self._config.max_model_len
            world = World(limits_of(self._config, size * -(-length // 4), 4, size, 64), self, arrivals={0: [samples]})
            world.drive()
            self._known[samples] = world.outputs()
        return self._known[samples]


def limits_of(config: ModelConfig, num_blocks: int, block_size: int, max_running: int, max_step_tokens: int) -> Limits:
    return Limits(
        vocab_size=config.vocab_size, max_model_len=config.max_model_len, block_size=block_size, num_blocks=num_blocks,
        max_running=max_running, max_step_tokens=max_step_tokens,
    )  # fmt: skip


def world_limits(num_blocks: int, block_size: int, max_running: int, max_step_tokens: int) -> Limits:
    return limits_of(CONFIG, num_blocks, block_size, max_running, max_step_tokens)
