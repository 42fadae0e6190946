"""Requests as policies see them, in any state one likes; and ways to drive a policy by hand."""

from typing import Any

from chairlift.core.ids import RequestId
from chairlift.core.policy import Policy, RequestView
from chairlift.core.request import Progress
from fakes.requests import make_request


def view(id: int, arrival: float = 0.0, prompt: int = 1, output: int = 4, **more: Any) -> Progress:
    """`num_output` tokens are there, all but the last computed; fields of Progress are set as given."""
    states = {name: more.pop(name) for name in ("num_computed", "num_preempted") if name in more}
    num_output = more.pop("num_output", 0)
    progress = Progress.of(make_request(id, range(prompt), output, **more), arrival)
    progress.tokens += [0] * num_output
    progress.num_computed = prompt + num_output - 1
    progress.expected_output = output
    for name, value in states.items():
        setattr(progress, name, value)
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
