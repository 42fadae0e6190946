"""A tiny decoder in worlds that `chairlift verify` drives: its script, and its comparison of logits bit for bit."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from chairlift.config.options.rules import make_policy, make_prefill
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.ports import Runner
from chairlift.core.request import Request
from chairlift.lab.verify.drive import OtherDepth, ScriptedRequest, WorldResult, drive
from chairlift.lab.verify.output import Outputs, SampleKey
from chairlift.models.kv_groups import kv_groups
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache, sizes_of
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.ops import Ops
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from fakes.worlds.world import World

OPS: dict[str, Callable[[], Ops]] = {"torch": lambda: TorchOps(exact=True), "native": lambda: NativeOps(2)}
LIMITS = Limits(
    vocab_size=301, max_model_len=400, block_size=8, num_blocks=240, max_running=9, max_step_tokens=256
)  # fmt: skip
_NUM_HOST_BLOCKS = 240
_REACH = 24  # tokens between two states that are kept


def why_missing(ops: str) -> str:
    """Why these operations cannot be tried here; empty: they can."""
    return "the native kernels were not built or not for this processor" if ops == "native" and not available() else ""


class ExactModel:
    """A decoder in worlds whose logits are watched: what each request gets alone, and what it gets among others, to be
    compared bit for bit."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, ops: Ops) -> None:
        cpu = torch.device("cpu")
        model = build_model(config, ops, DummyTensors(config), dtype, cpu, config.max_model_len)
        groups = kv_groups(
            config, can_group=any(mixer.fixed for mixer in config.mixers), sizes=sizes_of(8, dtype, dtype)
        )
        own = tuple(group._replace(reach=_REACH) if group.kind == "fixed" else group for group in groups.declared)
        groups = replace(groups, declared=own)
        self._limits = replace(LIMITS, groups=own, num_blocks=LIMITS.num_blocks * (8 if own else 1))
        cache = KvCache(
            config, self._limits.num_blocks, LIMITS.block_size, dtype, cpu, _NUM_HOST_BLOCKS, groups
        )  # fmt: skip
        self._runner = TorchRunner(model, cache, cpu)

    def make(self, world: World) -> Runner:
        return OtherDepth(self._runner, world.depth)

    def alone(self, requests: Sequence[Request]) -> Outputs:
        outputs: Outputs = {}
        for request in requests:
            outputs |= self.among([ScriptedRequest((request,))], [request], prefix_cache=False).outputs
        return outputs

    def among(
        self, script: Sequence[ScriptedRequest], wanted: Sequence[Request], depth: int = 1,
        first: Sequence[ScriptedRequest] = (), policy: str = "fcfs", prefill: str = "mixed",
        preemption: str = "recompute", prefix_cache: bool = True, **limits: int,
    ) -> WorldResult:  # fmt: skip
        """first: what the same engine has run before, for a cache that is warm. num_blocks: beside those of states."""
        if "num_blocks" in limits:
            limits["num_blocks"] += 3 * self._limits.pages.beside(1)
        host = 0 if preemption == "recompute" else _NUM_HOST_BLOCKS
        world = World(
            replace(self._limits, **limits), self, depth=depth, policy=make_policy(policy),
            prefill=make_prefill(prefill), preemption=Preemption(mode=preemption, num_host_blocks=host),
            has_prefix_index=prefix_cache,
        )  # fmt: skip
        if first:
            drive(world.engine, self._runner, first, {})
        result = drive(world.engine, self._runner, script, {request.id: key_of(request) for request in wanted})
        world.check_end()
        return result


def key_of(request: Request) -> SampleKey:
    return SampleKey(request.id, request.sample_index)


def other_ids(script: Sequence[ScriptedRequest], by: int = 10_000) -> list[ScriptedRequest]:
    return [
        entry._replace(samples=tuple(replace(r, id=RequestId(r.id + by)) for r in entry.samples)) for entry in script
    ]
