"""Random small fleets that two tenants share: one floods all replicas, the other has one of them, and gets its share.

Both always have waiting requests. The bound is that of `core/policies/fair_share.py`: a prompt and the output of
running requests in each replica, and what all replicas serve between two tellings.
"""

import random
from collections.abc import Sequence
from functools import partial

import pytest

from chairlift.core.attributes import Attributes
from chairlift.core.events import Admitted, Computed, Event, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.policies.fair_share import FairShare
from chairlift.core.request import Request
from chairlift.core.routing import service
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.fleet.run import ReplicaRun
from chairlift.telemetry.timeline import Timeline
from fakes.corner import SMALL, OneCorner

COST = CostModel(linear=((1, 0.01), (8, 0.02)), chunk_s=0.001, kv_token_s=1e-5)
FLOOD = "flood"
MAX_PROMPT, MAX_OUTPUT = 12, 10
NUM_EACH = 150


class Served(Timeline):
    """When each tenant was served how much, in the policy's measure: a prompt token 1, an output token 2."""

    def __init__(self, users: dict[RequestId, str]) -> None:
        super().__init__()
        self._users = users
        self.moments: list[tuple[float, str, float]] = []

    def happened(self, events: Sequence[Event]) -> None:
        super().happened(events)
        for event in events:
            if isinstance(event, Token):
                self.moments.append((event.at, self._users[event.request], 2.0))
            elif isinstance(event, Computed):
                self.moments.append((event.at, self._users[event.request], float(event.num_tokens)))
            assert not (isinstance(event, Admitted) and event.num_cached)


class World:
    def __init__(self, seed: int, count: int = 2) -> None:
        rng = self._rng = random.Random(seed)
        self.count, self.max_running, self.weight = count, rng.randint(1, 4), rng.choice([1.0, 1.0, 2.0])
        self._step_tokens = rng.randint(8, 20)
        requests = [self._request(i) for i in range(1, NUM_EACH * (1 + self.count) + 1)]
        self.served = Served({request.id: request.attributes.user for request in requests})
        run = ReplicaRun(
            partial(self._scheduler), self.count, OneCorner(), COST, depth=1, seed=seed, timeline=self.served
        )
        run.run((0.0, request) for request in requests)

    def _request(self, i: int) -> Request:
        rng = self._rng
        prompt = tuple(rng.randrange(9) for _ in range(rng.randint(1, MAX_PROMPT)))
        user = SMALL if i % (1 + self.count) == 0 else FLOOD
        return Request(
            id=RequestId(i), prompt=prompt, params=SamplingParams(max_tokens=MAX_OUTPUT, ignore_eos=True),
            max_output=rng.randint(1, MAX_OUTPUT), seed=i,
            attributes=Attributes(user=user, share=self.weight if user == FLOOD else 1.0),
        )  # fmt: skip

    def _scheduler(self, news: None = None) -> Scheduler:
        limits = Limits(
            vocab_size=9, max_model_len=64, block_size=4, num_blocks=100, max_running=self.max_running,
            max_step_tokens=self._step_tokens,
        )  # fmt: skip
        return Scheduler(limits, FairShare(), has_prefix_index=False)

    @property
    def bound(self) -> float:
        running = self.count * self.max_running * (MAX_PROMPT + 2 * MAX_OUTPUT)
        # A step takes 10 ms at least. Tokens of a prompt count with its first, perhaps some steps later.
        num_steps = self.count * (service.period_s(self.count) + 0.02) / 0.01
        return running + num_steps * (2 * self.max_running + self._step_tokens)

    def until_it_is_done(self) -> list[tuple[str, float]]:
        """What both were served while the small tenant had waiting requests: not in the last fifth of its time."""
        end = max(at for at, user, _ in self.served.moments if user == SMALL)
        return [(user, amount) for at, user, amount in sorted(self.served.moments) if at < 0.8 * end]

    @property
    def most_behind(self) -> float:
        """The small tenant, in tokens of one share."""
        behind, found = 0.0, list[float]()
        for user, amount in self.until_it_is_done():
            behind += amount / self.weight if user == FLOOD else -amount
            found.append(behind)
        return max(found)

    @property
    def part(self) -> float:
        """Of all that was served, the small tenant's."""
        both = self.until_it_is_done()
        return sum(amount for user, amount in both if user == SMALL) / sum(amount for _, amount in both)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(20))
def test_a_tenant_with_one_of_two_replicas_gets_its_share_of_both(seed: int) -> None:
    world = World(seed)
    assert world.most_behind <= world.bound


@pytest.mark.parametrize("seed", range(5))
def test_without_a_word_from_the_others_it_would_not(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairShare, "served_elsewhere", lambda self, services: None)
    world = World(seed)
    assert world.most_behind > world.bound


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_where_its_replica_is_less_than_its_share_it_gets_nearly_all_of_that(seed: int) -> None:
    world = World(seed, count=3)
    assert world.part > 0.29
