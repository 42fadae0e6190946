"""`chairlift trace`: what a recorded run came to, and the same as a picture for Chrome or Perfetto."""

import argparse
import json
from io import BufferedWriter
from pathlib import Path
from typing import Any

from chairlift.core.errors import InvalidConfig


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "trace",
        help="sum up a recorded run, or turn it into a picture",
        description="Sum up a trace that serve, generate or simulate wrote with --trace.",
        allow_abbrev=False,
    )
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("--chrome", type=Path, metavar="OUT", help="write it for ui.perfetto.dev or chrome://tracing")
    parser.add_argument("--slo", metavar="LIMITS", help="count requests within these limits: ttft=500ms,tpot=50ms")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from chairlift.telemetry.chrome import render
    from chairlift.telemetry.private_file import create_private
    from chairlift.telemetry.report import Slo
    from chairlift.telemetry.summary import summarize
    from chairlift.telemetry.trace import Trace

    slo = None if options.slo is None else Slo.parse(options.slo)
    trace = Trace(options.trace)
    if options.chrome is not None:
        try:
            with create_private(options.chrome) as file, BufferedWriter(file) as out:
                out.writelines(render(trace))
        except OSError as error:
            raise InvalidConfig(f"{options.chrome}: cannot be written: {error.strerror or error}") from error
    report = summarize(trace, slo)
    print(json.dumps(report.to_json()) if options.json else report.to_text())
    return 0
