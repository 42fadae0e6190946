"""`chairlift replay`: whether the simulator plans a recorded run as it was planned."""

import argparse
from pathlib import Path
from typing import Any


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "replay",
        help="check that a recorded run is planned the same again",
        description="Run a trace again in the simulator, with its arrivals, measured durations and tokens, and compare "
        "every plan.",
        allow_abbrev=False,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Exit code 1 when a plan or an event differs."""
    from chairlift.sim.replay.replay import replay
    from chairlift.telemetry.trace import Trace

    replayed = replay(Trace(options.trace))
    if replayed.difference is not None:
        print(f"{options.trace}, {replayed.difference}")
        return 1
    print(f"{replayed.num_steps} steps, all plans equal; {replayed.num_events} events, all equal")
    return 0
