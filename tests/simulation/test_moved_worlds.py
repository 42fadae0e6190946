"""Requests move between engines with their keys and values: random worlds in which they do so at random moments."""

from contextlib import closing
from pathlib import Path

import pytest

from chairlift.config.scheduler import Rules
from chairlift.core.events import Exported
from chairlift.core.limits import Limits
from chairlift.core.ports import Drafter
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.replay import replay
from chairlift.telemetry.lines import Arrive, Leave
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.trace import Trace
from fakes.moved_world import MovedWorld
from fakes.world import World, random_world


def run(seed: int, share: float = 0.1, drafts: bool = False) -> MovedWorld:
    world = MovedWorld(seed, share, drafts=drafts)
    try:
        world.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, share {share}, drafts {drafts}: {error}") from error
    return world


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "block", [*range(4), *(pytest.param(block, marks=pytest.mark.nightly) for block in range(4, 10))]
)
def test_a_request_that_moves_gets_the_tokens_it_would_get_alone(block: int) -> None:
    worlds = [run(seed) for seed in range(block * 50, block * 50 + 50)]
    assert sum(world.num_moved for world in worlds) > 20
    assert sum(world.num_lost for world in worlds) > 2


def test_so_it_does_when_it_moves_after_nearly_every_token() -> None:
    assert sum(run(seed, share=0.6).num_moved for seed in range(100)) > 300


def test_so_it_does_with_drafts_in_flight() -> None:
    assert sum(run(seed, share=0.3, drafts=True).num_moved for seed in range(100)) > 50


def test_blocks_in_another_order_show_as_wrong_tokens() -> None:
    """The worlds would notice a mistake."""

    class Careless(MovedWorld):
        def _move(self, world: World, event: Exported, step: int) -> None:
            super()._move(world, event._replace(blocks=event.blocks[::-1]), step)

    def run_all() -> None:
        for seed in range(50):
            Careless(seed, 0.3).run()

    with pytest.raises(AssertionError, match=r"alone it gets|never written"):
        run_all()


def test_a_trace_with_moves_is_replayed(tmp_path: Path) -> None:
    num_moves = 0
    for seed in range(20):
        moved = MovedWorld(seed, share=0.3)
        recorded = moved.worlds[1]
        rules = Rules(preemption=recorded.preemption, prefix_cache=recorded.has_prefix_index)
        path = tmp_path / f"trace-{seed}"
        with closing(Recorder(path, recorded.scheduler, rules, "ledger", "virtual", recorded.runner.depth)) as recorder:
            recorded.engine.observer = recorder
            moved.run()
        trace = Trace(path)

        def make(limits: Limits, rules: Rules, drafter: Drafter | None, seed: int = seed) -> Scheduler:
            return random_world(seed).scheduler  # with its own rules

        assert replay(trace, make).difference is None
        num_moves += sum(isinstance(line, Leave | Arrive) for line in trace)
    assert num_moves > 20
