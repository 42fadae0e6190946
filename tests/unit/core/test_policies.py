"""What each policy promises: its order, its victim, and its bound where it states one."""

import random
import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from types import FrameType
from typing import Any

import pytest

from chairlift.core.ids import RequestId
from chairlift.core.policies.fair_share import FairShare, InTurn
from chairlift.core.policies.known import POLICIES
from chairlift.core.policies.longest_prefix import LongestPrefix
from chairlift.core.policies.rankings import Deadline, Fcfs, LongestFirst, Priority, Ranked, ShortestFirst
from chairlift.core.policies.similar_length import SimilarLength
from chairlift.core.policy import Policy, RequestView
from chairlift.core.scheduling.queue import Rank
from fakes.request_views import admit, drain, running_view, view, wait


def test_first_come_first_served_ties_by_id() -> None:
    assert drain(Fcfs(), view(3, 2.0), view(2, 1.0), view(1, 2.0)) == [2, 1, 3]


def test_the_newest_is_first_come_first_serveds_victim() -> None:
    assert Fcfs().victim([running_view(1, 1.0), running_view(3, 2.0), running_view(2, 2.0)], 9.0) == 3


def test_first_come_first_serveds_victim_may_be_the_shortest_so_far() -> None:
    running = [running_view(1, 3.0, prompt=9), running_view(2, 1.0, prompt=4), running_view(3, 2.0, prompt=4)]
    assert Fcfs(victim="shortest").victim(running, 9.0) == 3


@pytest.mark.parametrize(("by", "order"), [("output", [2, 1, 3]), ("prompt", [3, 1, 2]), ("total", [3, 1, 2])])
def test_shortest_first_by_each_measure(by: str, order: list[int]) -> None:
    requests = (view(1, prompt=10, output=5), view(2, prompt=90, output=2), view(3, prompt=3, output=6))
    assert drain(ShortestFirst(by), *requests) == order
    assert drain(LongestFirst(by), *requests) == order[::-1]


def test_a_length_that_was_learnt_counts_where_none_was_asked_for() -> None:
    unsure = view(1, output=1000)
    unsure.expected_output = 3
    assert drain(ShortestFirst(), view(2, output=10), unsure) == [1, 2]


def test_shortest_firsts_victim_has_the_most_left_to_do() -> None:
    running = [
        running_view(1, output=100, num_output=95),
        running_view(2, output=50, num_output=1),
        running_view(3, output=20),
    ]
    assert ShortestFirst().victim(running, 0.0) == 2


def test_longest_firsts_victim_loses_the_least() -> None:
    assert (
        LongestFirst().victim([running_view(1, prompt=30), running_view(2, prompt=8), running_view(3, prompt=90)], 0.0)
        == 2
    )


@pytest.mark.parametrize("rule", [ShortestFirst, LongestFirst, SimilarLength])
def test_an_unknown_measure_lists_those_there_are(rule: Callable[..., Policy]) -> None:
    with pytest.raises(ValueError, match="by must be one of output, prompt, total"):
        rule(by="size")


def test_like_lengths_are_admitted_together() -> None:
    requests = [view(i, float(i), output=length) for i, length in enumerate((100, 10, 103, 9, 98, 11))]
    order = drain(SimilarLength(), *requests)
    assert sorted(order[:3]) == [1, 3, 5]  # the short ones are closest to nothing
    assert sorted(order[3:]) == [0, 2, 4]


def test_similar_lengths_victim_is_unlike_the_last_admitted() -> None:
    policy = SimilarLength()
    drain(policy, view(1, output=50))
    assert (
        policy.victim([running_view(2, output=45), running_view(3, output=500), running_view(4, output=60)], 0.0) == 3
    )


def test_priority_serves_smaller_numbers_first_and_ages_those_that_wait() -> None:
    policy = Priority(aging=0.5)
    requests = [view(1, 0.0, priority=5), view(2, 8.0, priority=0), view(3, 12.0, priority=0)]
    assert drain(policy, *requests) == [2, 1, 3]  # five levels are worth ten seconds
    assert drain(Priority(aging=0.0), *requests) == [2, 3, 1]


def test_prioritys_victim_is_the_least_urgent() -> None:
    running = [running_view(1, 0.0, priority=1), running_view(2, 1.0, priority=3), running_view(3, 2.0, priority=3)]
    assert Priority().victim(running, 9.0) == 3


def test_the_earliest_deadline_first_and_a_default_for_those_without() -> None:
    requests = [view(1, 0.0), view(2, 1.0, deadline_s=20.0), view(3, 2.0, deadline_s=5.0)]
    assert drain(Deadline(default=10.0), *requests) == [3, 1, 2]
    assert Deadline(default=10.0).victim(requests, 3.0) == 2


@pytest.mark.parametrize("kind", [Priority, Deadline])
def test_a_subclass_with_another_rank_has_other_victims(kind: type[Ranked]) -> None:
    class ByPrompt(kind):  # type: ignore[misc, valid-type]
        def rank(self, view: RequestView) -> Rank:
            return (len(view.request.prompt),)

    assert ByPrompt().victim([running_view(1, 0.0, prompt=9), running_view(2, 1.0, prompt=3)], 9.0) == 1


def test_users_take_turns_however_many_requests_one_of_them_has() -> None:
    policy = FairShare(prompt=1.0, output=1.0)
    requests = [view(i, user="many", prompt=10) for i in range(6)]
    requests += [view(i, user="few", prompt=10) for i in range(6, 8)]
    wait(policy, *requests)
    known = {one.id: one for one in requests}
    users = []
    for _ in requests:
        chosen = known[admit(policy, known)]  # type: ignore[arg-type]
        policy.served(chosen, 10, 0)
        users.append(chosen.request.attributes.user)
    assert users == ["few", "many", "few", "many", "many", "many", "many", "many"]


def test_a_body_of_one_input_does_not_wait_for_one_of_many() -> None:
    policy = InTurn(prompt=1.0, output=1.0)
    requests = [view(i, prompt=10, group="many") for i in range(6)] + [view(6, prompt=10, group="one")]
    wait(policy, *requests)
    known = {each.id: each for each in requests}
    order = []
    for _ in requests:
        chosen = known[admit(policy, known)]  # type: ignore[arg-type]
        policy.served(chosen, 10, 0)
        order.append(chosen.id)
    assert order == [0, 6, 1, 2, 3, 4, 5]


def test_a_user_of_many_bodies_gets_no_more_than_one_of_a_single_body() -> None:
    policy = InTurn(prompt=1.0, output=1.0)
    requests = [view(i, prompt=10, group=f"body {i % 3}", user="many") for i in range(6)]
    requests += [view(6 + i, prompt=10, group="body", user="one") for i in range(3)]
    wait(policy, *requests)
    known = {each.id: each for each in requests}
    order = []
    for _ in requests:
        chosen = known[admit(policy, known)]  # type: ignore[arg-type]
        policy.served(chosen, 10, 0)
        order.append(chosen.id)
    assert order == [0, 6, 1, 7, 2, 8, 3, 4, 5]


def test_an_idle_user_saves_nothing_up() -> None:
    policy = FairShare()
    for i in range(5):
        busy = view(i, user="busy")
        drain(policy, busy)
        policy.served(busy, 100, 0)
    back = [view(10 + i, user="back") for i in range(3)]
    more = [view(20 + i, user="busy") for i in range(3)]
    wait(policy, *back, *more)
    known = {one.id: one for one in (*back, *more)}
    turns = []
    for _ in range(4):
        chosen = known[admit(policy, known)]
        policy.served(chosen, 100, 0)
        turns.append(chosen.request.attributes.user)
    assert turns == ["back", "back", "busy", "back"]  # the turn that "busy" had last, then one each


def test_what_is_computed_again_is_not_charged() -> None:
    policy = FairShare()
    policy.served(running_view(1, user="a", num_preempted=1), 1000, 1)
    policy.served(running_view(2, user="b"), 10, 1)
    assert drain(policy, view(3, user="b"), view(4, user="a")) == [4, 3]


def test_fair_share_charges_all_decodes_at_once_as_it_does_each() -> None:
    crowd = [running_view(i, user="aab"[i % 3]) for i in range(10)]
    each, once = FairShare(output=0.3), FairShare(output=0.3)
    for one in crowd:
        each.served(one, 0, 1)
    once.decoded(crowd)
    assert once._served == pytest.approx(each._served)


def test_a_user_with_two_shares_is_served_twice_as_much() -> None:
    policy, served = FairShare(prompt=0.0, output=1.0), {"a": 0, "b": 0}
    waiting = {i: view(i, user="ab"[i % 2], share=2.0 - i % 2) for i in range(60)}
    wait(policy, *waiting.values())
    for _ in range(45):
        first = policy.first(0.0)
        assert first is not None
        policy.remove(waiting[first])
        policy.served(waiting[first], 0, 10)
        served[waiting[first].request.attributes.user] += 10
    assert served == {"a": 300, "b": 150}


def test_fair_shares_victim_is_the_newest_of_the_most_served_user() -> None:
    policy = FairShare()
    running = [running_view(1, 1.0, user="a"), running_view(2, 2.0, user="a"), running_view(3, 3.0, user="b")]
    policy.served(running[0], 50, 0)
    policy.served(running[2], 49, 0)
    assert policy.victim(running, 9.0) == 2


def test_a_user_that_holds_the_running_set_yields_until_the_least_served_waiting_user_holds_as_much() -> None:
    policy = FairShare()
    running = [running_view(i, float(i), user="many") for i in range(8)]
    running[7].num_computed -= 5  # in its prompt: has no token yet
    for one in running:
        policy.served(one, 10, 1)
    wait(policy, *(view(10 + i, user="many") for i in range(4)), view(20, user="few"), view(21, user="few"))
    assert policy.yielding(running, 9.0) == [6, 5]
    wait(policy, *(view(22 + i, user="few") for i in range(6)))
    assert policy.yielding(running, 9.0) == [6, 5, 4, 3]
    few = [running_view(30 + i, user="few") for i in range(4)]
    assert policy.yielding([*running[:4], *few], 9.0) == []


def test_a_user_that_was_served_less_does_not_yield() -> None:
    policy = FairShare()
    policy.served(view(20, user="few"), 100, 1)
    running = [running_view(i, float(i), user="many") for i in range(8)]
    wait(policy, view(21, user="few"))
    assert policy.yielding(running, 9.0) == ()
    policy.served(running[0], 100, 2)
    assert policy.yielding(running, 9.0) == [7]


def test_samples_that_do_not_fit_a_share_take_no_places() -> None:
    policy = FairShare()
    running = [running_view(i, float(i), user="many") for i in range(8)]
    policy.served(running[0], 10, 1)
    lead = view(9, user="few")
    lead.siblings = [view(10 + i, user="few") for i in range(4)]
    wait(policy, lead)
    assert policy.yielding(running, 9.0) == []
    lead.siblings.pop()
    wait(policy, lead)
    assert policy.yielding(running, 9.0) == [7, 6, 5, 4]


def test_what_yielded_is_the_first_of_its_user() -> None:
    policy = FairShare()
    assert drain(policy, view(3), view(4), view(2, num_preempted=1), view(1, num_preempted=1)) == [1, 2, 3, 4]


def test_fair_share_keeps_little_of_users_that_come_once() -> None:
    policy = FairShare()
    for i in range(45_000):
        once = view(i, user=f"user {i}")
        drain(policy, once)
        policy.served(once, 1, 1)
    assert len(policy._served) <= 20_002
    assert len(policy._heap) <= 1


def test_fair_share_keeps_one_entry_for_a_user_that_comes_again_and_again() -> None:
    policy = FairShare()
    wait(policy, view(0, user="waits"))
    for i in range(1, 1000):
        again = view(i, user="again")
        wait(policy, again)
        policy.first(0.0)
        policy.remove(again)
        policy.served(again, 5, 5)
    assert len(policy._heap) <= 2


class Cached:
    def __init__(self, tokens: dict[int, int]) -> None:
        self._tokens = tokens
        self.num_asked = 0

    def num_cached(self, view: RequestView) -> int:
        self.num_asked += 1
        return self._tokens.get(view.id, 0)


def test_the_longest_cached_prefix_first_of_equals_the_oldest() -> None:
    policy = LongestPrefix()
    policy.watch(Cached({2: 32, 4: 64}))
    assert drain(policy, *(view(i) for i in range(1, 6))) == [4, 2, 1, 3, 5]


def test_only_the_oldest_are_asked_for() -> None:
    policy, cache = LongestPrefix(window=8), Cached({20: 99})
    policy.watch(cache)
    wait(policy, *(view(i) for i in range(30)))
    assert policy.first(0.0) == 0
    assert cache.num_asked == 8


def test_the_cache_is_asked_again_only_when_the_queue_changed() -> None:
    policy, cache = LongestPrefix(window=3), Cached({2: 5, 3: 9})
    policy.watch(cache)
    requests = [view(i) for i in range(5)]
    wait(policy, *requests[:3])
    assert [policy.first(0.0) for _ in range(4)] == [2] * 4
    assert cache.num_asked == 3
    wait(policy, *requests[3:])  # behind the window
    assert policy.first(0.0) == 2
    assert cache.num_asked == 3
    policy.remove(requests[0])  # aborted
    assert policy.first(0.0) == 3
    assert cache.num_asked == 6


def test_the_oldest_waits_no_longer_than_its_patience() -> None:
    policy = LongestPrefix(patience=3)
    policy.watch(Cached({i: 100 - i for i in range(1, 20)}))
    assert drain(policy, *(view(i) for i in range(10))) == [1, 2, 3, 0, 4, 5, 6, 7, 8, 9]


def num_admitted_between(policy: Policy, seed: int, length: Callable[[random.Random], int]) -> list[tuple[int, int]]:
    """Under a queue that is kept full: for each request, how many waited before it and after how many it ran."""
    rng = random.Random(seed)
    waiting: dict[RequestId, RequestView] = {}
    found: dict[RequestId, tuple[int, int]] = {}
    spans, num_admitted = [], 0
    for i in range(3000):
        one = view(i, float(i), prompt=1, output=length(rng))
        found[one.id] = (len(waiting), num_admitted)
        waiting[one.id] = one
        policy.push(one, float(i))
        while len(waiting) > 40 or (len(waiting) > 5 and rng.random() < 0.5):
            first = admit(policy, waiting, float(i))
            del waiting[first]
            num_admitted += 1
            num_found, since = found[first]
            spans.append((num_found, num_admitted - since))
    return spans


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_policies_with_patience_holds(seed: int) -> None:
    prefix = LongestPrefix(window=8, patience=4)
    prefix.watch(Cached({i: i * 7919 % 101 for i in range(3000)}))
    for policy in (SimilarLength(patience=4), prefix):
        spans = num_admitted_between(policy, seed, lambda rng: rng.choice([3, 50, 700]))
        assert all(span <= (num_found + 1) * 5 for num_found, span in spans)
        assert max(span - num_found for num_found, span in spans) > 5, "no request was passed over: too easy"


@pytest.mark.parametrize("seed", range(3))
def test_with_aging_only_those_that_come_soon_after_pass(seed: int) -> None:
    rng = random.Random(seed)
    requests = [view(i, float(i), priority=rng.randint(0, 4)) for i in range(400)]
    order = drain(Priority(aging=0.1), *requests)
    place = {request: i for i, request in enumerate(order)}
    for one in requests:
        passed_by = [o for o in requests if o.arrival > one.arrival and place[o.id] < place[one.id]]
        assert all(o.arrival <= one.arrival + one.request.attributes.priority / 0.1 for o in passed_by)


@pytest.mark.parametrize("seed", range(3))
def test_no_request_is_passed_by_one_that_comes_after_its_deadline(seed: int) -> None:
    rng = random.Random(seed)
    requests = [view(i, float(i), deadline_s=rng.choice([None, 3.0, 30.0])) for i in range(400)]
    place = {request: i for i, request in enumerate(drain(Deadline(default=60.0), *requests))}
    for one in requests:
        due = one.arrival + (one.request.attributes.deadline_s or 60.0)
        assert all(place[o.id] > place[one.id] for o in requests if o.arrival > due)


@pytest.mark.parametrize("seed", range(3))
def test_users_with_work_waiting_are_served_alike(seed: int) -> None:
    """Four requests run at once; each computes its prompt and then a token a step."""
    rng = random.Random(seed)
    policy, served = FairShare(prompt=1.0, output=1.0), {"a": 0, "b": 0, "c": 0}
    most_prompt, most_output, max_running = 20, 30, 4
    waiting = {
        one.id: one
        for one in (
            view(i, user=rng.choice("aaaabc"), prompt=rng.randint(1, 20), output=rng.randint(1, 30))
            for i in range(2000)
        )
    }
    wait(policy, *waiting.values())
    running: deque[tuple[RequestView, int]] = deque()
    while all(any(o.request.attributes.user == user for o in waiting.values()) for user in served):
        while len(running) < max_running:
            chosen = waiting.pop(policy.first(0.0))  # type: ignore[arg-type]
            policy.remove(chosen)
            policy.served(chosen, len(chosen.request.prompt), 0)
            served[chosen.request.attributes.user] += len(chosen.request.prompt)
            running.append((chosen, chosen.request.max_output))
        for _ in range(len(running)):
            one, left = running.popleft()
            policy.served(one, 0, 1)
            served[one.request.attributes.user] += 1
            if left > 1:
                running.append((one, left - 1))
        assert max(served.values()) - min(served.values()) <= most_prompt + max_running * most_output
    assert min(served.values()) > 1000


@lru_cache
def many() -> list[RequestView]:
    return [
        view(i, float(i), prompt=1, output=1 + i * 7919 % 4000, user=f"{i % 50}", priority=i % 5) for i in range(10_500)
    ]


def cost(policy: Policy, num_waiting: int) -> int:
    """Lines of Python run for 100 requests that come and 100 that are admitted, in a queue of this length."""
    known: dict[RequestId, RequestView] = {one.id: one for one in many()}
    wait(policy, *many()[:num_waiting])
    lines = 0

    def count(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for one in many()[num_waiting : num_waiting + 100]:
            policy.push(one, one.arrival)
            admit(policy, known, one.arrival)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("name", POLICIES)
def test_a_long_queue_costs_about_as_much_per_request_as_a_short_one(name: str) -> None:
    assert cost(POLICIES[name](), 10_000) < 3 * cost(POLICIES[name](), 100)  # a queue a hundred times as long
