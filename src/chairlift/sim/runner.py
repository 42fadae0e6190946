"""A runner without a model: it samples the same token for everybody and lets the clock say how long that took.

Up to `depth` plans are under way; the device does one after the other, as a real one does.
"""

from collections import deque

from chairlift.core.plan import StepPlan, StepResult
from chairlift.sim.clock import VirtualClock
from chairlift.sim.cost import CostModel, shape_of

_TOKEN = 0


class SimRunner:
    def __init__(self, cost: CostModel, block_size: int, clock: VirtualClock, depth: int = 1) -> None:
        self.depth = depth
        self._cost = cost
        self._block_size = block_size
        self._clock = clock
        self._ready = 0.0  # when the device has done all that was submitted
        self._results: deque[tuple[float, StepResult]] = deque()

    def submit(self, plan: StepPlan) -> None:
        shape = shape_of(plan, self._block_size, self._cost.max_row_pairs)
        self._ready = max(self._ready, self._clock.now()) + self._cost.seconds(shape)
        self._results.append((self._ready, StepResult(plan.step, [_TOKEN] * shape.num_samples)))

    def collect(self) -> StepResult:
        ready, result = self._results.popleft()
        self._clock.advance_to(ready)
        return result
