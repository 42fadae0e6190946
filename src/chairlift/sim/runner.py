"""A runner without a model: samples the same token for every request and takes the time that the cost model predicts.

Up to `depth` plans are in flight; the device runs one after the other. Submitting takes the host some time, which is
hidden where the device is busy meanwhile.
"""

from collections import deque
from dataclasses import replace

from chairlift.core.plan import Sampled, StepPlan, StepResult
from chairlift.sim.clock import VirtualClock
from chairlift.sim.cost import CostModel, shape_of
from chairlift.sim.drafts import TOKEN, SimDrafts


class SimRunner:
    def __init__(
        self, cost: CostModel, block_size: int, clock: VirtualClock, depth: int = 1, drafts: SimDrafts | None = None
    ) -> None:
        self.depth = depth
        self._cost = cost
        self._block_size = block_size
        self._clock = clock
        self._drafts = drafts
        self._ready = 0.0  # when all submitted plans are done
        self._results: deque[tuple[float, StepResult]] = deque()

    def submit(self, plan: StepPlan) -> None:
        shape = shape_of(plan, self._block_size, self._cost.max_row_pairs, self._cost.min_prompt_rows)
        self._clock.advance_to(self._clock.now() + self._cost.begin_s(shape.num_rows))
        self._ready = max(self._ready, self._clock.now()) + self._cost.seconds(shape)
        result = StepResult(plan.step, [TOKEN] * shape.num_samples)
        if self._drafts is not None:
            result = _with_drafts(plan, self._drafts)
        self._results.append((self._ready, result))

    def collect(self) -> StepResult:
        ready, result = self._results.popleft()
        was_ready = ready < self._clock.now()
        self._clock.advance_to(ready)
        return replace(result, was_ready=True) if was_ready else result


def _with_drafts(plan: StepPlan, drafts: SimDrafts) -> StepResult:
    tokens = [TOKEN] * sum(len(chunk.samples) for chunk in plan.chunks)
    chunks = plan.chunks[plan.num_decodes : plan.num_decoding]
    more = {chunk.request.id: [Sampled(TOKEN)] * drafts.num_right(len(chunk.drafts)) for chunk in chunks}
    return StepResult(plan.step, tokens, more={request: tokens for request, tokens in more.items() if tokens})
