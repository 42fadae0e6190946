"""A virtual clock, and a runner without a model on it.

Drafts of a simulated run: each is accepted with the same probability if those before it are, drawn from the given
random source.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from chairlift.core.ids import RequestId
from chairlift.core.plan import Sampled, StepPlan, StepResult
from chairlift.core.request import Request
from chairlift.core.score import TokenScore
from chairlift.lab.sim.cost import CostModel, shape_of


class VirtualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance_to(self, moment: float) -> None:
        """Never goes back."""
        self._now = max(self._now, moment)


TOKEN = 0  # sampled for every request


class SimDrafts:
    """A drafter, and how many of its drafts are accepted."""

    def __init__(self, acceptance: float, rng: random.Random) -> None:
        self._acceptance = acceptance
        self._rng = rng

    def draft(self, request: Request, tokens: Sequence[int], count: int) -> Sequence[int]:
        return (TOKEN,) * count

    def num_right(self, num_drafts: int) -> int:
        """Drafts that are accepted, up to the first that is not."""
        return next((i for i in range(num_drafts) if self._rng.random() >= self._acceptance), num_drafts)


class SimRunner:
    """A runner without a model: samples the same token for every request and takes the time that the cost model
    predicts.

    Up to `depth` plans are in flight; the device runs one after the other. Submitting takes the host some time,
    which is hidden where the device is busy meanwhile.
    """

    def __init__(
        self, cost: CostModel, block_size: int, clock: VirtualClock, depth: int = 1, drafts: SimDrafts | None = None
    ) -> None:
        self.depth = depth
        self._cost = cost
        self._block_size = block_size
        self._clock = clock
        self._drafts = drafts
        self._has_searches = False
        self._rng = random.Random("offers")
        self._ready = 0.0  # when all submitted plans are done
        self._results: deque[tuple[float, StepResult]] = deque()

    def submit(self, plan: StepPlan) -> None:
        shape = shape_of(plan, self._block_size, self._cost.max_row_pairs, self._cost.min_prompt_rows)
        self._clock.advance_to(self._clock.now() + self._cost.begin_s(shape.num_rows))
        self._ready = max(self._ready, self._clock.now()) + self._cost.seconds(shape)
        result = StepResult(plan.step, [TOKEN] * shape.num_samples, self._offers(plan))
        if self._drafts is not None:
            result = _with_drafts(plan, self._drafts)
        self._results.append((self._ready, result))

    def _offers(self, plan: StepPlan) -> dict[RequestId, TokenScore]:
        """Of the members of beam searches: candidates, each about e times as likely as the next."""
        found: dict[RequestId, TokenScore] = {}
        if any(chunk.request.params.beam_width for chunk in plan.chunks[plan.num_decodes :]):
            self._has_searches = True
        for chunk in plan.chunks if self._has_searches else ():
            for request in chunk.samples if chunk.request.params.beam_width else ():
                logprobs = accumulate(-self._rng.expovariate(1.0) for _ in range(request.params.logprobs or 0))
                found[request.id] = TokenScore(TOKEN, 0.0, 0.0, 1, tuple(enumerate(logprobs)))
        return found

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
