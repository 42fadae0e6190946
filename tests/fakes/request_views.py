"""Requests as rules see them, waiting or running; and ways to drive a policy by hand."""

from typing import Any

from chairlift.core.ids import RequestId
from chairlift.core.policy import Policy, RequestView
from chairlift.core.request import Progress, State
from fakes.requests import make_request


def view(id: int, arrival: float = 0.0, prompt: int = 1, output: int = 4, **more: Any) -> Progress:
    """A waiting request: nothing is computed, though `num_output` tokens may be there from before a preemption."""
    num_preempted, num_output = more.pop("num_preempted", 0), more.pop("num_output", 0)
    progress = Progress.of(make_request(id, range(prompt), output, **more), arrival)
    progress.tokens += [0] * num_output
    progress.num_preempted = num_preempted
    progress.expected_output = output
    return progress


def running_view(
    id: int, arrival: float = 0.0, prompt: int = 1, output: int = 4, num_computed: int | None = None, **more: Any
) -> Progress:
    """A running request: all known tokens but the last are computed, or as many as given."""
    progress = view(id, arrival, prompt, output, **more)
    progress.state = State.RUNNING
    progress.num_computed = progress.num_known - 1 if num_computed is None else num_computed
    return progress


def wait(policy: Policy, *views: RequestView) -> None:
    for one in views:
        policy.push(one, one.arrival)


def admit(policy: Policy, known: dict[RequestId, RequestView], now: float = 0.0) -> RequestId:
    """The next request to be admitted, now gone from the queue."""
    first = policy.first(now)
    assert first is not None
    policy.remove(known[first])
    return first


def drain(policy: Policy, *views: RequestView, now: float = 0.0) -> list[int]:
    """These wait together; the order in which they are admitted."""
    wait(policy, *views)
    known = {one.id: one for one in views}
    order = [admit(policy, known, now) for _ in views]
    assert policy.first(now) is None
    return order
