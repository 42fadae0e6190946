"""Requests move between engines with their keys and values: random worlds in which they do so at random moments."""

from contextlib import closing
from pathlib import Path

import pytest

from chairlift.config.scheduler import Rules
from chairlift.core.engine import Engine
from chairlift.core.events import Exported
from chairlift.core.limits import Limits
from chairlift.core.ports import Drafter
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.replay import replay
from chairlift.telemetry.lines import Arrive, Leave
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.trace import Trace
from fakes.worlds.draws import moved_world, random_world
from fakes.worlds.moves import Moves


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "block", [*range(4), *(pytest.param(block, marks=pytest.mark.nightly) for block in range(4, 10))]
)
def test_a_request_that_moves_gets_the_tokens_it_would_get_alone(block: int) -> None:
    worlds = [moved_world(seed, share=0.1).run() for seed in range(block * 50, block * 50 + 50)]
    assert sum(world.counts["moved"] for world in worlds) > 20
    assert sum(world.counts["lost"] for world in worlds) > 2


def test_so_it_does_when_it_moves_after_nearly_every_token() -> None:
    assert sum(moved_world(seed, share=0.6).run().counts["moved"] for seed in range(100)) > 300


@pytest.mark.nightly
def test_so_it_does_with_drafts_in_flight() -> None:
    assert sum(moved_world(seed, share=0.3, drafts=True).run().counts["moved"] for seed in range(100)) > 50


def test_blocks_in_another_order_show_as_wrong_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worlds would notice a mistake."""
    move = Moves._move

    def careless(self: Moves, engine: Engine, event: Exported) -> None:
        move(self, engine, event._replace(blocks=event.blocks[::-1]))

    def run_all() -> None:
        for seed in range(50):
            moved_world(seed, share=0.3).run()

    monkeypatch.setattr(Moves, "_move", careless)
    with pytest.raises(AssertionError, match=r"alone it gets|never written"):
        run_all()


def test_a_trace_with_moves_is_replayed(tmp_path: Path) -> None:
    num_moves = 0
    for seed in range(20):
        world = moved_world(seed, share=0.3)
        recorded = world.engine.engines[1]
        rules = Rules(preemption=world.preemption, prefix_cache=world.has_prefix_index)
        path = tmp_path / f"trace-{seed}"
        with closing(Recorder(path, recorded.scheduler, rules, "ledger", "virtual", recorded.runner.depth)) as recorder:
            recorded.observer = recorder
            world.run()
        trace = Trace(path)

        def make(limits: Limits, rules: Rules, drafter: Drafter | None, seed: int = seed) -> Scheduler:
            return random_world(seed).scheduler  # with its own rules

        assert replay(trace, make).difference is None
        num_moves += sum(isinstance(line, Leave | Arrive) for line in trace)
    assert num_moves > 20
