"""`chairlift compare`: one workload under many settings, as a table and a picture."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from chairlift.cli.flags import add_option_flags, flags_of
from chairlift.cli.simulate import add_workload_flags, items_from, number, progress
from chairlift.config.values import whole
from chairlift.core.errors import InvalidConfig


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "compare",
        help="simulate a workload under many settings side by side",
        description="Simulate one workload under every combination of the settings that vary.",
        allow_abbrev=False,
    )
    add_workload_flags(parser)
    parser.add_argument(
        "--vary", action="append", default=[], metavar="NAME=V,V",
        help="a setting below or `arrivals`, and its values: policy=fcfs,longest-first; may be repeated",
    )  # fmt: skip
    parser.add_argument("--slo", metavar="LIMITS", help="count requests within these limits: ttft=500ms,tpot=50ms")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write the table as CSV, JSON and HTML, and its charts as SVG"
    )
    parser.add_argument("--title", metavar="TEXT", help="of the picture (default: the workload and what varies)")
    parser.add_argument("--json", action="store_true", help="one JSON list instead of a table")
    add_option_flags(parser, "engine")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from chairlift.sim.comparison.compare import VariantReport, compare, to_json, to_text
    from chairlift.sim.comparison.vary import parse_vary, variants
    from chairlift.sim.profile import DEFAULT, load_profile
    from chairlift.telemetry.report import Slo

    varied = parse_vary(options.vary)
    wanted = variants(varied, options.arrivals, flags_of(options), options.config, os.environ)
    profile = load_profile(options.profile or DEFAULT)
    if options.model is not None:
        profile.check_model(options.model)
    slo = None if options.slo is None else Slo.parse(options.slo)
    seed = number(options, "seed", whole(0))
    rows: list[VariantReport] = []
    with progress() as watch:
        for row in compare(wanted, lambda: items_from(options), profile, seed, slo, watch):
            rows.append(row)
            if watch is not None:
                print(f"\r{len(rows)} of {len(wanted)}: {row.variant.label}", file=sys.stderr)
    for row in rows:
        for failure in row.report.rule_failures:
            print(f"chairlift: warning: {row.variant.label}: {failure}; the plain one took its place", file=sys.stderr)
    print(json.dumps(to_json(rows)) if options.json else to_text(rows))
    if options.out is not None:
        _write(rows, options.title or _title(options, list(varied)), options.out)
    return 0


def _title(options: argparse.Namespace, varied: list[str]) -> str:
    what = " and ".join(name.replace("_", "-") for name in varied)
    return f"{Path(options.workload).name}, arrivals {options.arrivals}" + (f": {what}" if what else "")


def _write(rows: Any, title: str, folder: Path) -> None:
    from chairlift.sim.comparison.picture import write

    try:
        paths = write(rows, title, folder)
    except OSError as error:
        raise InvalidConfig(f"{folder}: cannot be written: {error.strerror or error}") from error
    print(f"wrote {', '.join(map(str, paths))}", file=sys.stderr)
