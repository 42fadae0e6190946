"""`chairlift compare`: one workload simulated under many settings, as a table and a chart."""

import argparse
import json
import os
import sys
from pathlib import Path

from chairlift.cli.inputs.flags import add_option_flags, flags_of, parsed, progress, warn, writing
from chairlift.cli.inputs.workload import add_workload_flags, advance, items_from, profile_from
from chairlift.config.options.values import whole

HELP = "simulate a workload under many settings side by side"
DESCRIPTION = "Simulate one workload under every combination of the settings that vary."
USAGE = "--workload FILE --vary NAME=V,V [options]"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_workload_flags(parser)
    parser.add_argument(
        "--vary", action="append", default=[], metavar="NAME=V,V",
        help="try these values of an option below or of `arrivals`: policy=fcfs,longest-first; may be repeated",
    )  # fmt: skip
    parser.add_argument("--slo", metavar="LIMITS", help="count requests within these limits: ttft=500ms,tpot=50ms")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write the table as CSV, JSON and HTML, and its charts as SVG"
    )
    parser.add_argument("--title", metavar="TEXT", help="title of the charts (default: the workload and what varies)")
    parser.add_argument("--json", action="store_true", help="print one JSON list instead of a table")
    add_option_flags(parser, "engine", "replicas")


def run(options: argparse.Namespace) -> int:
    from chairlift.lab.sim.comparison.compare import VariantReport, compare, to_json, to_text
    from chairlift.lab.sim.comparison.vary import parse_vary, variants
    from chairlift.telemetry.report import Slo

    varied = parse_vary(options.vary)
    wanted = variants(varied, options.arrivals, flags_of(options), options.config, os.environ)
    warn(dict.fromkeys(warning for variant in wanted for warning in variant.settings.warnings))
    profile = profile_from(options)
    slo = None if options.slo is None else Slo.parse(options.slo)
    seed = parsed(options, "seed", whole(0))
    items = list(items_from(options))  # read once: the workload's warnings are too
    rows: list[VariantReport] = []
    with progress(advance, unit=" steps") as watch:
        for row in compare(wanted, items, profile, seed, slo, watch):
            rows.append(row)
            if watch is not None:
                print(f"\r{len(rows)} of {len(wanted)}: {row.variant.label}", file=sys.stderr)
    for row in rows:
        for failure in row.report.rule_failures:
            print(f"chairlift: warning: {row.variant.label}: {failure}; the plain rule replaced it", file=sys.stderr)
    print(json.dumps(to_json(rows)) if options.json else to_text(rows))
    if options.out is not None:
        from chairlift.lab.sim.comparison.picture import write

        with writing(options.out):
            paths = write(rows, options.title or _title(options, list(varied)), options.out)
        print(f"wrote {', '.join(map(str, paths))}", file=sys.stderr)
    return 0


def _title(options: argparse.Namespace, varied: list[str]) -> str:
    what = " and ".join(name.replace("_", "-") for name in varied)
    return f"{Path(options.workload).name}, arrivals {options.arrivals}" + (f": {what}" if what else "")
