"""`chairlift trace`: the figures of a recorded run, and the run as a timeline for Chrome or Perfetto."""

import argparse
import json
from io import BufferedWriter
from pathlib import Path

from chairlift.cli.inputs.flags import writing

HELP = "sum up a recorded run, or turn it into a picture"
DESCRIPTION = "Sum up a trace that serve, generate or simulate wrote with --trace."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="TRACE", help="trace file that --trace wrote")
    parser.add_argument("--chrome", type=Path, metavar="OUT", help="write it for ui.perfetto.dev or chrome://tracing")
    parser.add_argument("--slo", metavar="LIMITS", help="count requests within these limits: ttft=500ms,tpot=50ms")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(options: argparse.Namespace) -> int:
    from chairlift.telemetry.chrome import render
    from chairlift.telemetry.mapped import create_private
    from chairlift.telemetry.report import Slo
    from chairlift.telemetry.trace import Trace, summarize

    slo = None if options.slo is None else Slo.parse(options.slo)
    trace = Trace(options.trace)
    if options.chrome is not None:
        with writing(options.chrome), create_private(options.chrome) as file, BufferedWriter(file) as out:
            out.writelines(render(trace))
    report = summarize(trace, slo)
    print(json.dumps(report.to_json()) if options.json else report.to_text())
    return 0
