"""`chairlift explain`: where one request's time went."""

import argparse
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import RequestId


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="say where one request's time went",
        description="Say in words where a request's time went, from a trace that serve, generate or simulate wrote.",
        allow_abbrev=False,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("request", metavar="REQUEST", help="its number, or `slowest`")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from chairlift.telemetry.breakdown import break_down, slowest
    from chairlift.telemetry.explain import in_words
    from chairlift.telemetry.trace import Trace

    trace = Trace(options.trace)
    if options.request == "slowest":
        request = slowest(trace)
    elif options.request.isdecimal() and len(options.request) < 19:
        request = RequestId(int(options.request))
    else:
        raise InvalidConfig(f"REQUEST must be a request's number or `slowest`, got {options.request!r}")
    print(in_words(break_down(trace, request)))
    return 0
