"""Random small fleets: replicas that are lost, drained, added and scaled lose no request, and skipping ahead is the
same as stepping with any router; with roles too."""

import random
from collections.abc import Sequence
from functools import partial

import pytest

from chairlift.config.options.rules import make_router
from chairlift.core.attributes import Attributes
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Event, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.moving import MovePrice
from chairlift.core.params import SamplingParams
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.routing import prefixes
from chairlift.core.routing.news import PrefixNews
from chairlift.core.routing.roster import Role, Roles
from chairlift.core.routing.rules import ROUTERS
from chairlift.core.routing.scaling import Scaling
from chairlift.core.scheduling.invariants import check
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.core.scheduling.steady import Skipped
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.fleet.changes import NO_CHANGES, Autoscale, Change, Changes, FleetEvent
from chairlift.lab.sim.fleet.moves import NO_SPLIT, Split
from chairlift.lab.sim.fleet.run import ReplicaRun
from chairlift.telemetry.timeline import Timeline

COST = CostModel(linear=((1, 0.01), (8, 0.02)), chunk_s=0.001, kv_token_s=1e-5)
Times = dict[RequestId, list[float]]


class Watched(Timeline):
    """Keeps the time of every token."""

    def __init__(self) -> None:
        super().__init__()
        self.times: Times = {}
        self.num_skipped = 0  # steps

    def happened(self, events: Sequence[Event]) -> None:
        super().happened(events)
        for event in events:
            if isinstance(event, Token):
                self.times.setdefault(event.request, []).append(event.at)

    def skipped(self, steps: Skipped) -> None:
        super().skipped(steps)
        self.num_skipped += len(steps.times)
        for request in steps.requests:
            self.times.setdefault(request, []).extend(steps.times)
        for request in steps.ended:
            self.times.setdefault(request, []).extend(steps.times[:-1])


def scheduler(seed: int, num_host_tokens: int = 0, news: PrefixNews | None = None) -> Scheduler:
    rng = random.Random(seed)
    size = rng.choice([1, 2, 4])
    limits = Limits(
        vocab_size=9, max_model_len=64, block_size=size, num_blocks=rng.randint(64, 120) // size,
        max_running=rng.randint(1, 5), max_step_tokens=rng.randint(5, 20),
    )  # fmt: skip
    return Scheduler(limits, Fcfs(), preemption=Preemption(num_host_blocks=num_host_tokens // size), news=news)


def arriving(seed: int, count: int = 60) -> list[tuple[float, Request]]:
    rng = random.Random(seed)
    shared = [rng.randrange(2) for _ in range(20)]
    found, now = [], 0.0
    for i in range(count):
        now += rng.choice([0.0, 0.001, 0.02, 0.3])
        prompt = shared[: rng.randint(0, 16)] + [rng.randrange(2) for _ in range(rng.randint(1, 8))]
        params = SamplingParams(max_tokens=rng.randint(1, 36), temperature=0.0, ignore_eos=True)
        request = Request(
            id=RequestId(i + 1), prompt=tuple(prompt), params=params, max_output=params.max_tokens or 1, seed=i,
            attributes=Attributes(user=rng.choice(["", "ann", "bob"])),
        )  # fmt: skip
        found.append((now, request))
    return found


def changes(seed: int, count: int) -> Changes:
    """At random times; every replica that goes comes back, the last ones late."""
    rng = random.Random(seed)
    if rng.random() < 0.3:
        scaling = Scaling(1, count + 3, target=rng.choice([20.0, 100.0]), up=rng.choice([0.0, 2.0]), down=1.0)
        lost = [FleetEvent(rng.uniform(0.0, 9.0), Change.LOSE, rng.randrange(count)) for _ in range(3)]
        return Changes(tuple(sorted(lost, key=lambda event: event.at)), Autoscale(scaling, rng.choice([0.0, 1.5])))
    events = []
    for replica in range(count):
        now = 0.0
        for _ in range(rng.randint(0, 3)):
            now += rng.uniform(0.0, 2.0)
            events.append(FleetEvent(now, rng.choice([Change.LOSE, Change.DRAIN]), replica))
            now += rng.choice([0.0, 0.001, 1.0])
            events.append(FleetEvent(now, Change.ADD, replica))
    return Changes(tuple(sorted(events, key=lambda event: event.at)))


def served(
    seed: int,
    count: int,
    router: str,
    changes: Changes = NO_CHANGES,
    skips: bool = True,
    concurrency: int = 0,
    num_prefill: int = 0,
    depth: int = 1,
) -> tuple[Times, ReplicaRun]:
    watched = Watched()
    make, split = partial(scheduler, seed), NO_SPLIT
    if num_prefill:
        rng = random.Random(seed)
        make = partial(make, num_host_tokens=rng.choice([4, 64, 256]))
        price = MovePrice(rng.choice([1, 50, 1000]), make().limits.pages, 5e3, 1e4)
        roles: list[Role] = ["prefill"] * num_prefill + ["decode"] * (count - num_prefill)
        split = Split(Roles(roles), price)
    run = ReplicaRun(make, count, make_router(router), COST, depth, seed, changes, skips, timeline=watched, split=split)
    run.run(arriving(seed), concurrency)
    return watched.times, run


@pytest.mark.sampled(1)
@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("count", [1, 3, 40])
def test_skipping_ahead_is_the_same_as_stepping(monkeypatch: pytest.MonkeyPatch, router: str, count: int) -> None:
    monkeypatch.setattr(prefixes, "SPAN_TOKENS", 4)
    for seed in range(12):
        concurrency = 5 * (seed % 4 == 3)
        stepped, _ = served(seed, count, router, skips=False, concurrency=concurrency)
        assert served(seed, count, router, concurrency=concurrency)[0] == stepped


@pytest.mark.sampled(1)
@pytest.mark.parametrize("router", ROUTERS)
def test_no_request_and_no_token_is_lost_whatever_becomes_of_replicas(
    monkeypatch: pytest.MonkeyPatch, router: str
) -> None:
    monkeypatch.setattr(prefixes, "SPAN_TOKENS", 4)
    num_moved = 0
    for seed in range(60):
        count = 1 + seed % 4
        times, run = served(seed, count, router, changes(seed, count), concurrency=7 * (seed % 5 == 4))
        for _, request in arriving(seed):
            assert len(times[request.id]) == request.max_output, f"seed {seed}: request {request.id}"
            assert times[request.id] == sorted(times[request.id]), f"seed {seed}: request {request.id}"
        report = run.timeline.report()
        assert report.finished == report.requests == 60
        assert report.output_tokens == sum(request.max_output for _, request in arriving(seed))
        assert all(replica is None or not replica.num_live for replica in run.replicas)
        num_moved += report.moves
    assert num_moved > 100


@pytest.mark.nightly
def test_skipping_ahead_is_the_same_as_stepping_with_losses_and_scaling() -> None:
    for seed in range(40):
        count = 1 + seed % 4
        stepped, _ = served(seed, count, "least-loaded", changes(seed, count), skips=False)
        assert served(seed, count, "least-loaded", changes(seed, count))[0] == stepped, f"seed {seed}"


@pytest.mark.parametrize("seed", [65, 106, 242])
def test_plans_in_flight_end_before_the_requests_of_a_drained_replica_move(seed: int) -> None:
    """They may come back to it, as others with the same ids."""
    count = 1 + seed % 4
    _, run = served(seed, count, "least-loaded", changes(seed, count), depth=2)
    assert run.timeline.report().finished == 60


def test_a_fleet_without_replicas_is_refused() -> None:
    gone = Changes((FleetEvent(0.1, Change.LOSE, 0),))
    with pytest.raises(InvalidConfig, match="no replica is left"):
        served(1, 1, "prefix", gone)


def test_requests_of_a_drained_replica_stay_where_no_other_takes_them() -> None:
    times, run = served(1, 1, "prefix", Changes((FleetEvent(0.3, Change.DRAIN, 0), FleetEvent(0.9, Change.ADD, 0))))
    assert run.timeline.report().moves == 0
    assert len(times) == 60


@pytest.mark.sampled(1)
@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("count", [2, 3, 6])
def test_skipping_ahead_is_the_same_as_stepping_with_roles(
    monkeypatch: pytest.MonkeyPatch, router: str, count: int
) -> None:
    monkeypatch.setattr(prefixes, "SPAN_TOKENS", 4)
    num_skipped = 0
    for seed in range(16):
        concurrency, num_prefill = 5 * (seed % 4 == 3), 1 + seed % (count - 1)
        stepped, _ = served(seed, count, router, skips=False, concurrency=concurrency, num_prefill=num_prefill)
        skipped, run = served(seed, count, router, concurrency=concurrency, num_prefill=num_prefill)
        assert skipped == stepped, f"seed {seed}"
        num_skipped += run.timeline.num_skipped  # type: ignore[attr-defined]
    assert num_skipped > 100


@pytest.mark.sampled(1)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("router", ROUTERS)
def test_with_roles_no_request_and_no_token_is_lost_whatever_becomes_of_replicas(
    monkeypatch: pytest.MonkeyPatch, router: str, depth: int
) -> None:
    monkeypatch.setattr(prefixes, "SPAN_TOKENS", 4)
    num_moved = num_whole = 0
    for seed in range(60):
        count = 2 + seed % 4
        lost = changes(seed, count) if seed % 3 else NO_CHANGES
        lost = NO_CHANGES if lost.autoscale else lost
        concurrency = 7 * (seed % 5 == 4)
        times, run = served(
            seed, count, router, lost, concurrency=concurrency, num_prefill=1 + seed % (count - 1), depth=depth
        )
        for _, request in arriving(seed):
            assert len(times[request.id]) == request.max_output, f"seed {seed}: request {request.id}"
            assert times[request.id] == sorted(times[request.id]), f"seed {seed}: request {request.id}"
        report = run.timeline.report()
        assert report.finished == report.requests == 60
        for replica in run.replicas:
            if replica is not None:
                check(replica.engine.scheduler)
                assert not replica.num_live
                tables = replica.engine.scheduler.tables
                tables.begin()
                assert tables.host.num_free == tables.host.num_blocks, f"seed {seed}: host blocks leaked"
        num_moved += report.moves
        num_whole += report.kv_moves
    assert num_moved > num_whole > 500


def test_a_request_comes_back_to_a_prefill_replica_with_plans_in_flight() -> None:
    _, run = served(1580, 2, "prefix", changes(1580, 2), num_prefill=1, depth=2)
    assert run.timeline.report().finished == 60


@pytest.mark.nightly
def test_skipping_ahead_is_the_same_as_stepping_with_roles_and_losses() -> None:
    for seed in range(60):
        count = 2 + seed % 4
        lost = changes(seed, count)
        if lost.autoscale is None:
            num_prefill = 1 + seed % (count - 1)
            stepped, _ = served(seed, count, "least-loaded", lost, skips=False, num_prefill=num_prefill)
            assert served(seed, count, "least-loaded", lost, num_prefill=num_prefill)[0] == stepped, f"seed {seed}"
