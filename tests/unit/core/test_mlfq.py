"""Multi-level feedback: levels, preemption between them, and that no request starves."""

from dataclasses import replace

import pytest

from chairlift.core.events import Admitted, Preempted, Queued, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.policies.mlfq import Mlfq
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Policy
from fakes.request_views import drain, running_view, view, wait
from fakes.requests import make_request
from fakes.worlds.world import World

LIMITS = Limits(vocab_size=50, max_model_len=256, block_size=4, num_blocks=256, max_running=2, max_step_tokens=64)


def test_long_prompts_join_lower_levels() -> None:
    policy = Mlfq(quantum=10, rate=2.0)
    assert drain(policy, view(1, prompt=35), view(2, prompt=11), view(3, prompt=10)) == [3, 2, 1]


def test_what_has_used_its_level_up_sinks() -> None:
    policy = Mlfq(quantum=10)
    long = view(1)
    wait(policy, long)
    policy.remove(long)
    for _ in range(10):
        policy.served(long, 0, 1)
    assert drain(policy, long, view(2, prompt=10)) == [2, 1]


@pytest.mark.parametrize("num_tokens", [1, 9, 10, 11, 29, 30, 31, 500])
def test_all_decodes_at_once_count_as_each_does(num_tokens: int) -> None:
    """Sinking after 10 tokens and 20 more; the last level has no end."""
    each, once = Mlfq(levels=3, quantum=10), Mlfq(levels=3, quantum=10)
    crowd = [view(i, prompt=prompt) for i, prompt in enumerate((1, 5, 15, 100), start=1)]
    for policy in (each, once):
        wait(policy, *crowd[:3])
        for one in crowd[:3]:  # the last is a further sample, which never waited
            policy.remove(one)
    for _ in range(num_tokens):
        for one in crowd:
            each.served(one, 0, 1)
        once.decoded(crowd)
    assert once._level == each._level and once._rest == each._rest


def test_recomputed_prompts_do_not_use_a_level_up() -> None:
    policy = Mlfq(quantum=10)
    back = view(1, prompt=9, num_preempted=1)
    wait(policy, back)
    policy.remove(back)
    policy.served(back, 9, 1)
    assert drain(policy, back, view(2, prompt=9)) == [1, 2]


def test_the_worst_running_requests_yield_to_better_waiting_ones() -> None:
    policy = Mlfq(quantum=10)
    running = [
        running_view(1, prompt=9),
        running_view(2, prompt=30),
        running_view(3, prompt=100),
        running_view(4, prompt=100),
    ]
    wait(policy, view(5, prompt=20), view(6, prompt=20))
    assert policy.yielding(running, 1.0) == [4, 3]
    wait(policy, *(view(i, prompt=20) for i in range(7, 12)))
    assert policy.yielding(running, 1.0) == [4, 3, 2]  # the first is on a better level itself


def test_no_request_yields_within_its_prompt() -> None:
    policy = Mlfq(quantum=10)
    wait(policy, view(2))
    assert policy.yielding([running_view(1, prompt=100, num_computed=50)], 1.0) == []
    assert policy.yielding([running_view(1, prompt=100)], 1.0) == [1]


def test_the_victim_is_on_the_worst_level() -> None:
    running = [running_view(1, prompt=100), running_view(2, 5.0), running_view(3, 1.0, prompt=100)]
    assert Mlfq(quantum=10).victim(running, 9.0) == 3


def test_a_starving_request_rises_above_all() -> None:
    policy = Mlfq(quantum=10, starve=5.0)
    old, older = view(1, 1.0, prompt=100), view(2, 0.0, prompt=300)
    wait(policy, older, old, view(3, 4.0), view(4, 4.0))
    assert policy.first(4.9) == 3
    assert policy.first(5.0) == 2
    assert policy.yielding([running_view(9), running_view(8)], 6.0) == [9, 8]  # for both that have risen by then
    policy.remove(older)
    assert policy.first(6.0) == 1


def test_a_risen_request_sinks_after_a_quantum() -> None:
    policy = Mlfq(quantum=10, starve=5.0)
    risen = view(1, 0.0, prompt=300, num_preempted=1)
    wait(policy, risen)
    assert policy.first(5.0) == 1
    policy.remove(risen)
    risen.num_computed = risen.num_known - 1
    wait(policy, view(2, 5.0))
    for _ in range(9):
        policy.served(risen, 0, 1)
    assert policy.yielding([risen], 6.0) == []
    policy.served(risen, 0, 1)
    assert policy.yielding([risen], 6.0) == []  # now on the level of the waiting one, not below
    for _ in range(10):
        policy.served(risen, 0, 1)
    assert policy.yielding([risen], 6.0) == [1]


def test_nothing_is_kept_of_ended_requests() -> None:
    policy = Mlfq()
    gone = view(1)
    drain(policy, gone)
    policy.served(gone, 1, 1)
    policy.left(gone)
    assert not policy._level and not policy._rest


def stream_of_short_ones(policy: Policy, depth: int) -> World:
    """Two long requests, and after them for a long time just as many short ones as two running at once can serve."""
    arrivals = {0: [(make_request(i, range(i, i + 40), 60),) for i in (1, 2)]}
    for step in range(2, 400, 2):
        arrivals[step] = [(make_request(10 + step, [step % 50], 4),)]
    return World(LIMITS, policy=policy, depth=depth, arrivals=arrivals).run()


@pytest.mark.parametrize("depth", [1, 2])
def test_short_requests_pass_long_ones_that_run(depth: int) -> None:
    def first_token(world: World, request: int) -> float:
        return next(e.at for e in world.events if isinstance(e, Token) and e.request == request)

    quick, plain = stream_of_short_ones(Mlfq(quantum=8, starve=1e9), depth), stream_of_short_ones(Fcfs(), depth)
    assert any(isinstance(e, Preempted) and e.request in (1, 2) for e in quick.events)
    assert first_token(quick, 12) < 20 < 100 < first_token(plain, 12)


@pytest.mark.parametrize("depth", [1, 2])
def test_long_requests_end_under_a_stream_of_short_ones(depth: int) -> None:
    """Without rising they end after the stream."""
    is_last = []
    for starve in (20.0, 1e9):
        events = stream_of_short_ones(Mlfq(quantum=8, starve=starve), depth).events
        last = [e for e in events if isinstance(e, Token)][-1]
        is_last.append(last.request in (1, 2))
    assert is_last == [False, True]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_starving_request_is_not_passed_by_one_that_began_to_wait_later(depth: int) -> None:
    starve, since, num_risen = 40.0, dict[RequestId, float](), 0
    for event in stream_of_short_ones(Mlfq(quantum=8, starve=starve), depth).events:
        if isinstance(event, Queued | Preempted):
            since[event.request] = event.at
        elif isinstance(event, Admitted):
            began = since.pop(event.request)
            num_risen += event.at - began >= starve
            assert all(other >= began for other in since.values() if event.at - other >= starve)
    assert num_risen > 5, "the world was too easy to show anything"


def test_memory_that_does_not_suffice_is_no_obstacle() -> None:
    limits = replace(LIMITS, num_blocks=30, max_model_len=120)
    arrivals = {0: [(make_request(i, range(i, i + 30), 40),) for i in (1, 2)]}
    arrivals |= {step: [(make_request(10 + step, [step % 50] * 20, 8),)] for step in range(1, 60, 3)}
    world = World(limits, policy=Mlfq(quantum=8, starve=20.0), arrivals=arrivals).run()
    assert sum(isinstance(e, Preempted) for e in world.events) > 3
