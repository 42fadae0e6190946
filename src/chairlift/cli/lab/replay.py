"""`chairlift replay`: whether the simulator plans a recorded run as it was planned."""

import argparse
from pathlib import Path

HELP = "check that a recorded run is planned the same again"
DESCRIPTION = (
    "Run a trace again in the simulator, with its arrivals, measured durations and tokens, and compare every plan."
)
EPILOG = "exit codes: 0 all equal; 1 a plan or an event differs; 2 a mistake"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE", help="trace file that --trace wrote")


def run(options: argparse.Namespace) -> int:
    from chairlift.lab.sim.replay import replay
    from chairlift.telemetry.trace import Trace

    replayed = replay(Trace(options.trace))
    if replayed.difference is not None:
        print(f"{options.trace}, {replayed.difference}")
        return 1
    print(f"{replayed.num_steps} steps, all plans equal; {replayed.num_events} events, all equal")
    return 0
