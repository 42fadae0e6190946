"""Worlds that write a trace while they run."""

from contextlib import closing
from pathlib import Path

from chairlift.config.scheduler import Rules
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.trace import Trace
from fakes.worlds.world import World


def record(world: World, path: Path, rules: Rules | None = None) -> Trace:
    """Runs the world; `rules` are those that the header names, whatever the world's are."""
    rules = rules or Rules(preemption=world.preemption, prefix_cache=world.has_prefix_index)
    with closing(Recorder(path, world.scheduler, rules, "ledger", "virtual", world.runner.depth)) as recorder:
        world.engine.observer = recorder
        world.run()
    return Trace(path)
