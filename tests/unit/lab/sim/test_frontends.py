"""Requests on their way to an engine: front ends read one after the other."""

import random
from dataclasses import replace

import pytest

from chairlift.config.settings import Settings
from chairlift.core.policies.known import POLICIES
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.fleet.changes import NO_CHANGES
from chairlift.lab.sim.frontends import Frontends
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.run import simulate
from chairlift.lab.sim.setup import make_fleet
from chairlift.lab.workload.item import Item
from chairlift.lab.workload.requests import requests_of
from chairlift.telemetry.timeline import Timeline
from fakes.requests import make_request

SECOND = CostModel(linear=((1, 1.0),))


def sent_at_once(*lengths: int) -> list[tuple[float, Request]]:
    return [(2.0, make_request(1 + i, range(length))) for i, length in enumerate(lengths)]


def test_one_reads_after_the_other() -> None:
    frontends, found = Frontends(request_s=0.5, token_s=0.25), []
    for seen in frontends.seen(sent_at_once(8, 4)):
        found.append((seen.number, seen.at, seen.arrival, frontends.delay_s(seen.request)))
    assert found == [(0, 4.5, 2.0, 2.5), (1, 5.5, 2.0, 3.5)]


def test_what_takes_no_time_is_seen_in_order_of_arrival() -> None:
    assert [seen.number for seen in Frontends(4).seen(sent_at_once(9, 1, 5, 3))] == [0, 1, 2, 3]


def test_of_many_the_short_ones_come_sooner_but_not_always() -> None:
    rng, first, last = random.Random(4), 0, 0
    for seed in range(200):
        lengths = [1000, 4000, 9000, 9000, 9000, 9000]
        rng.shuffle(lengths)
        seen = [lengths[each.number] for each in Frontends(4, 0.0, 1e-6, seed).seen(sent_at_once(*lengths))]
        first, last = first + (seen[0] == 1000), last + (seen[-1] == 1000)
    assert 80 < first < 180 and 0 < last < 50


def test_a_request_that_is_read_for_long_lets_later_ones_pass() -> None:
    arriving = [(0.0, make_request(1, range(100))), (0.25, make_request(2, range(1)))]
    orders = {tuple(each.number for each in Frontends(2, 0.0, 0.01, seed).seen(arriving)) for seed in range(20)}
    assert orders == {(0, 1), (1, 0)}


def test_only_requests_on_their_way_are_kept() -> None:
    frontends, longest = Frontends(3, 0.01, 1e-4), 0
    arriving = ((0.1 * i, make_request(1 + i, range(10))) for i in range(500))
    for _ in frontends.seen(arriving):
        longest = max(longest, len(frontends._delay_s))
    assert longest <= 2 and not frontends._delay_s


def test_requests_count_from_when_they_were_sent_in_one_engine_and_in_a_fleet_of_one() -> None:
    profile = replace(
        load_profile("h200-llama2-7b"), max_model_len=64, max_running=1, max_step_tokens=64, cost=SECOND, depth=1,
        arrival_s=0.1, arrival_token_s=0.001, frontends=1, groups=(),
    )  # fmt: skip
    limits = profile.limits(Settings())
    items = [Item(prompt_tokens=count, output_tokens=1, arrival_s=0.0) for count in (9, 40, 3)]
    fleet = make_fleet(Settings(), profile, limits, 0, NO_CHANGES)
    fleet.run(requests_of(items, limits, 0), 0, None, profile.make_frontends(0))
    frontends = profile.make_frontends(0)
    timeline, scheduler = Timeline(delay=frontends.delay_s), Scheduler(limits, POLICIES["fcfs"]())
    simulate(requests_of(items, limits, 0), scheduler, SECOND, timeline, frontends=frontends)
    for each in timeline, fleet.timeline:
        assert each.report().e2e_s.max == pytest.approx(3.109)  # the engine sees the first after 0.109 s
        assert each.report().ttft_s.p50 == pytest.approx(2.109)
