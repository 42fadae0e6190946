"""A trial of scheduling rules on a handful of requests, before anything real depends on them."""

from chairlift.core.attributes import Attributes
from chairlift.core.events import RuleFailed
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepResult
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Admission, Policy, Prefill, Service
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler

# Too small a running set and too few blocks for all, so that every method is called.
_LIMITS = Limits(vocab_size=2, max_model_len=12, block_size=2, num_blocks=8, max_running=3, max_step_tokens=6)
_MAX_STEPS = 500


def failure(
    policy: Policy | None = None, prefill: Prefill | None = None, admission: Admission | None = None
) -> str | None:
    """What goes wrong with these rules, or None. Rules keep state, so they cannot be used afterwards."""
    scheduler = Scheduler(_LIMITS, policy or Fcfs(), prefill, admission)
    for i in range(8):
        scheduler.add((_request(i + 1),), now=float(i))
    now = 8.0
    for _ in range(_MAX_STEPS):
        plan = scheduler.schedule(now)
        if plan is None:
            break
        now += 1.0
        tokens = [0] * sum(len(chunk.samples) for chunk in plan.chunks)
        scheduler.commit(plan, StepResult(plan.step, tokens), now)
        scheduler.served_elsewhere([Service("a", 1.0, plan.step, 1), Service("c", 2.0, 3, 0)], now)
        if plan.step == 2:
            scheduler.abort(RequestId(8), now)
    failed = next((event.message for event in scheduler.take_events() if isinstance(event, RuleFailed)), None)
    return failed or ("requests never end" if scheduler.live else None)


def _request(i: int) -> Request:
    return Request(
        id=RequestId(i),
        prompt=(0,) * (1 + 3 * i % 7),
        params=SamplingParams(max_tokens=5 if i % 3 else None),
        max_output=5,
        seed=0,
        attributes=Attributes(priority=i % 2, user=("", "a", "b")[i % 3], deadline_s=float(i) if i % 2 else None),
    )
