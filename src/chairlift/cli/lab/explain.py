"""`chairlift explain`: where one request's time went."""

import argparse
from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import RequestId

HELP = "say where one request's time went"
DESCRIPTION = "Break down the latency of one request, from a trace that serve, generate or simulate wrote."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE", help="trace file that --trace wrote")
    parser.add_argument("request", metavar="REQUEST", help="number of the request, or `slowest`")


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
