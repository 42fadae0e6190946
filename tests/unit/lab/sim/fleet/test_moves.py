"""Simulated replicas with roles: when a request moves, how long its keys and values take, and what stops them."""

from collections.abc import Sequence
from functools import partial

import pytest

from chairlift.core.events import Event, Token
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.moving import MovePrice
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.routing.roster import Role, Roles
from chairlift.core.routing.rules import RoundRobin
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.fleet.moves import Split
from chairlift.lab.sim.fleet.run import ReplicaRun
from chairlift.telemetry.timeline import Timeline
from fakes.requests import make_request

COST = CostModel(linear=((1, 0.01), (8, 0.08)), swap_token_s=0.001)  # 0.01 s a token
LIMITS = Limits(vocab_size=99, max_model_len=64, block_size=4, num_blocks=64, max_running=8, max_step_tokens=64)
ONE_EACH: tuple[Role, ...] = ("prefill", "decode")


class Heard(Timeline):
    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def happened(self, events: Sequence[Event]) -> None:
        super().happened(events)
        self.times += [event.at for event in events if isinstance(event, Token)]


def served(
    prompts: Sequence[Sequence[int]],
    num_output: int = 3,
    roles: Sequence[Role] = ONE_EACH,
    copied_per_s: float = 2000.0,
    fetched_per_s: float = 1000.0,
    num_host_blocks: int = 64,
    arrivals: Sequence[float] = (),
) -> Heard:
    """A block has 1,000 bytes."""
    heard, preemption = Heard(), Preemption(num_host_blocks=num_host_blocks)
    price = MovePrice(1000, LIMITS.pages, copied_per_s, fetched_per_s)
    make = partial(Scheduler, LIMITS, Fcfs(), preemption=preemption)
    split = Split(Roles(roles), price)
    run = ReplicaRun(make, len(roles), RoundRobin(), COST, skips=False, timeline=heard, split=split)
    requests = [make_request(i, prompt, num_output) for i, prompt in enumerate(prompts, 1)]
    run.run(zip(arrivals or [0.0] * len(requests), requests, strict=True))
    return heard


def test_a_move_takes_as_long_as_its_bytes_at_both_ends() -> None:
    heard = served([range(8)])
    first, second, third = heard.times
    assert first == pytest.approx(0.08)
    # 8 tokens out to the host, 2,000 bytes copied and fetched, and in again with the next token's step.
    assert second - first == pytest.approx(0.008 + 1.0 + 2.0 + 0.008 + 0.01)
    assert third - second == pytest.approx(0.01)
    report = heard.report()
    assert (report.moves, report.kv_moves) == (1, 1)


def test_a_request_is_let_go_between_two_steps_of_its_source() -> None:
    heard = served([range(8), range(20, 60)], num_output=2, copied_per_s=1e6, arrivals=(0.0, 0.085))
    # The second prompt's step begins as the first request's blocks are out and takes 0.4 s; the copy takes 0.002 s.
    assert heard.times[2] == pytest.approx(0.088 + 0.4 + 2.0 + 0.018)


def test_copies_wait_for_each_other() -> None:
    heard = served([range(8), range(8, 16)], num_output=2)
    # Both leave in one step; each is copied in 1 s and fetched in 2 s.
    assert [b - 0.176 for b in heard.times[2:]] == pytest.approx([3.018, 4.018])


def test_a_request_that_ends_with_its_first_token_stays() -> None:
    assert served([range(8)], num_output=1).report().moves == 0


def test_what_the_host_cannot_hold_is_computed_again() -> None:
    heard = served([range(8)], num_host_blocks=1)
    # It goes on at its source until that has found no room, then 10 known tokens are computed.
    assert heard.times == pytest.approx([0.08, 0.09, 0.09 + 0.1])
    report = heard.report()
    assert (report.moves, report.kv_moves) == (1, 0)


def test_a_piece_that_no_fetch_gets_to_in_time_is_computed_again() -> None:
    prompts = [range(8 * i, 8 * i + 8) for i in range(5)]
    report = served(prompts, copied_per_s=1e9, fetched_per_s=20.0).report()  # 100 s each, four at once
    assert (report.finished, report.moves, report.kv_moves) == (5, 5, 4)


@pytest.mark.parametrize(("num_host_blocks", "num_whole"), [(5, 2), (9, 3)])
def test_pieces_that_wait_to_be_fetched_are_bounded(num_host_blocks: int, num_whole: int) -> None:
    prompts = [range(8 * i, 8 * i + 8) for i in range(3)]
    roles: tuple[Role, ...] = ("prefill", "decode", "decode", "decode")
    report = served(prompts, 40, roles, 1e9, 20.0, num_host_blocks).report()
    assert (report.finished, report.kv_moves) == (3, num_whole)
