"""A GPU that is only numbers: memory that is taken and given back, and a runner that takes some of it for each step."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import RunnerFull
from chairlift.runner import kernels
from chairlift.runner.machine import hardware

GIB = 2**30
MIB = 2**20
_MOST_CAPTURED = 1024  # tokens


class DoneEvent:
    """A CUDA event that is done at once."""

    def record(self) -> None: ...

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...


@dataclass
class FakeGpu:
    total: int = 24 * GIB
    taken: int = GIB  # for good
    cached: int = 0  # held by the allocator, given back on request
    capability: tuple[int, int] = (9, 0)

    @property
    def free(self) -> int:
        return self.total - self.taken - self.cached

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """In the place of the facts that the runner asks for."""
        patch.setattr(hardware, "pick_device", lambda name: torch.device("cuda"))
        patch.setattr(hardware, "total_memory", lambda device: self.total)
        patch.setattr(hardware, "free_memory", lambda device: self.free)
        patch.setattr(hardware, "capability", lambda device: self.capability)
        patch.setattr(kernels, "why_not_triton_compiles", lambda: "")
        patch.setattr(torch.cuda, "empty_cache", self.release)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda: True)

    def release(self) -> None:
        self.cached = 0


@dataclass
class FakeGpuRunner:
    """Takes memory as a real one does: its own, of the largest step so far, and of each captured one. Small steps are
    captured when they come again."""

    gpu: FakeGpu
    limits: Limits
    token_bytes: int = MIB
    sample_bytes: int = 0
    graph_bytes: int = 0  # of decodes
    mixed_bytes: int = 0  # more with prompts
    depth: int = 1
    plans: list[StepPlan] = field(default_factory=list)
    tried: set[int] = field(default_factory=set)
    graphs: dict[int, int] = field(default_factory=dict)  # tokens -> bytes

    def submit(self, plan: StepPlan) -> None:
        num_samples = sum(len(chunk.samples) for chunk in plan.chunks)
        need = plan.num_tokens * self.token_bytes + num_samples * self.sample_bytes
        if need > self.gpu.free + self.gpu.cached:
            self.gpu.cached += self.gpu.free
            raise RunnerFull("CUDA out of memory")
        self.plans.append(plan)
        self.gpu.cached = max(self.gpu.cached, need)
        num_tokens = plan.num_tokens
        if num_tokens in self.tried and num_tokens <= _MOST_CAPTURED and num_tokens not in self.graphs:
            self.graphs[num_tokens] = self.graph_bytes + self.mixed_bytes * (plan.num_decodes < len(plan.chunks))
            self.gpu.taken += self.graphs[num_tokens]
        self.tried.add(num_tokens)

    def collect(self) -> StepResult:
        return StepResult(0, ())

    def __del__(self) -> None:
        self.gpu.taken -= sum(self.graphs.values())


def maker(gpu: FakeGpu, made: list[Limits], **sizes: int) -> Callable[[Limits], FakeGpuRunner]:
    def make(limits: Limits) -> FakeGpuRunner:
        made.append(limits)
        return FakeGpuRunner(gpu, limits, **sizes)

    return make
