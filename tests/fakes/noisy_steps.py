"""Simulated steps whose time is scattered, and a host that takes a while to submit them."""

import random
from dataclasses import dataclass, field

from chairlift.core.plan import StepResult
from chairlift.lab.sim.cost import CostModel, StepShape
from chairlift.lab.sim.runner import SimRunner, VirtualClock


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCost(CostModel):
    noise: float  # standard deviation, as a share of a step
    rng: random.Random = field(default_factory=lambda: random.Random(0), compare=False)

    def seconds(self, shape: StepShape) -> float:
        # Named, not super(): a dataclass with slots is made anew.
        return CostModel.seconds(self, shape) * max(0.5, self.rng.gauss(1.0, self.noise))


class CountingRunner(SimRunner):
    """Takes two plans; counts steps, and those that ended before the next was submitted."""

    def __init__(self, cost: CostModel, clock: VirtualClock) -> None:
        super().__init__(cost, 16, clock, depth=2)
        self.num_steps = self.num_late = 0

    def collect(self) -> StepResult:
        result = super().collect()
        self.num_steps += 1
        self.num_late += result.was_ready and bool(self._results)
        return result
