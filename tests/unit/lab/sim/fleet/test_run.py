"""Several simulated replicas: the router sees what their pools hold, and one replica is the plain simulation."""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from chairlift.config.options.rules import make_router
from chairlift.core.attributes import Attributes
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.policies.mlfq import Mlfq
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Policy
from chairlift.core.request import Request
from chairlift.core.routing import prefixes
from chairlift.core.routing.news import PrefixNews
from chairlift.core.routing.queued import QueuedWork
from chairlift.core.routing.replicas import members
from chairlift.core.routing.rules import ROUTERS
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.fleet.changes import Change, Changes, FleetEvent
from chairlift.lab.sim.fleet.run import ReplicaRun
from chairlift.lab.sim.frontends import Frontends
from chairlift.lab.sim.run import simulate
from chairlift.telemetry.report import Report
from chairlift.telemetry.timeline import Timeline

COST = CostModel(linear=((1, 0.01), (8, 0.02)), chunk_s=0.001, start_row_s=0.0005)


def scheduler(seed: int, policy: Callable[[], Policy] = Fcfs, news: PrefixNews | None = None) -> Scheduler:
    rng = random.Random(seed)
    size = rng.choice([1, 2, 4])
    limits = Limits(
        vocab_size=9, max_model_len=24, block_size=size, num_blocks=rng.randint(24, 40) // size,
        max_running=rng.randint(1, 4), max_step_tokens=rng.randint(4, 9),
    )  # fmt: skip
    return Scheduler(limits, policy(), news=news)


def arriving(seed: int) -> Iterator[tuple[float, Request]]:
    rng = random.Random(seed)
    now = 0.0
    for i in range(40):
        now += rng.choice([0.0, 0.001, 0.05, 0.5])
        prompt = tuple(rng.randrange(2) for _ in range(rng.randint(1, 16)))
        params = SamplingParams(max_tokens=rng.randint(1, 7), temperature=0.0, ignore_eos=True)
        yield now, Request(
            id=RequestId(i + 1), prompt=prompt, params=params, max_output=params.max_tokens or 1, seed=i,
            attributes=Attributes(user="ab"[i % 2]),
        )  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("concurrency", "token_s"), [(0, 0.0), (3, 1 / 64), (0, 1 / 64)])  # longer than some are apart
def test_one_replica_is_the_plain_simulation(depth: int, concurrency: int, token_s: float) -> None:
    for seed in range(30):
        plain = scheduler(seed)
        frontends = Frontends(3, 0.0, token_s, seed)
        timeline = Timeline(delay=None if concurrency else frontends.delay_s)
        simulate(arriving(seed), plain, COST, timeline, concurrency, depth, frontends=frontends)
        run = ReplicaRun(partial(scheduler, seed), 1, make_router("prefix"), COST, depth)
        run.run(arriving(seed), concurrency, frontends=Frontends(3, 0.0, token_s, seed))
        want, got = timeline.report(), run.timeline.report()
        for spread in ("ttft_s", "e2e_s", "queue_s"):
            for figure in ("mean", "p50", "max"):
                assert getattr(getattr(got, spread), figure) == pytest.approx(getattr(getattr(want, spread), figure))
        assert (got.total_s, got.steps) == (pytest.approx(want.total_s), want.steps)
        competing = [{user: share.competing_s for user, share in each.users.items()} for each in (got, want)]
        assert competing[0] == pytest.approx(competing[1]) and (seed or sum(competing[0].values()))


@pytest.mark.parametrize("router", ROUTERS)
def test_every_request_is_served_and_the_router_knows_what_the_pools_hold(
    monkeypatch: pytest.MonkeyPatch, router: str
) -> None:
    monkeypatch.setattr(prefixes, "SPAN_TOKENS", 2)
    for seed in range(8):
        run = ReplicaRun(partial(scheduler, seed), 2 + seed % 3, make_router(router), COST, seed=seed)
        run.run(arriving(seed))
        report = run.timeline.report()
        assert report.finished == report.requests == 40
        replicas = [replica for replica in run.replicas if replica is not None]
        for index, replica in enumerate(replicas):
            run._tell(index, replica)
            assert replica.observer.queued.amount == 0
        if not ROUTERS[router].needs_hashes:
            continue
        for _, request in arriving(seed):
            known = prefixes.span_hashes(request.packed.tokens, run.routing.span, "")
            found = {r: num for num, bits in run.routing.replicas.prefixes.match(known, run.routing.replicas.open)
                     for r in members(bits)}  # fmt: skip
            for index, replica in enumerate(replicas):
                pool = replica.engine.scheduler.pool
                blocks = pool.find("", request.packed.tokens, len(request.prompt) - 1).blocks
                assert found[index] >= len(blocks) * pool.block_size // run.routing.span


def test_a_queue_counts_only_what_is_left() -> None:
    queued = QueuedWork()
    (_, request), *_ = arriving(1)
    queued.added((request,), 0.0)
    assert queued.amount == len(request.prompt)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("policy", [Fcfs, partial(Mlfq, quantum=2)])  # the other makes running requests wait again
def test_requests_that_wait_go_to_a_replica_that_comes(policy: Callable[[], Policy]) -> None:
    def served(router: str, seed: int) -> tuple[Report, ReplicaRun]:
        changes = Changes((FleetEvent(0.0, Change.LOSE, 1), FleetEvent(0.4, Change.ADD, 1)))
        make = partial(scheduler, seed, policy)
        run = ReplicaRun(make, 2, make_router(router), COST, 1 + seed // 15, seed, changes)
        at_once = [(0.0, request) for _, request in arriving(seed)]
        run.run(iter(at_once))
        return run.timeline.report(), run

    for seed in range(30):
        (stay, left), (go, took) = served("prefix:rebalance=0", seed), served("prefix:rebalance=0.05", seed)
        assert stay.finished == go.finished == go.requests == 40
        assert [replica.num_taken for replica in left.replicas if replica is not None] == [40, 0]
        taken = [replica.num_taken for replica in took.replicas if replica is not None]
        assert taken[0] == 40
        assert 5 <= taken[1] == go.moves <= 28
        assert go.total_s < 0.9 * stay.total_s
        queued = took.timeline._done.queue_s
        assert len(queued) == 40 and not any(map(math.isnan, queued))
