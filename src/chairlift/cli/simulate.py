"""`chairlift simulate`: the latencies a workload would see, without a model and faster than real time."""

import argparse
import json

from chairlift.cli.inputs.flags import add_option_flags, parsed, progress, warned_settings
from chairlift.cli.inputs.workload import add_workload_flags, advance, items_from, profile_from
from chairlift.config.options.values import whole

HELP = "run a workload through the scheduler without a model"
DESCRIPTION = "Run a workload through the scheduler on a virtual clock; a profile says how long steps take."


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_workload_flags(parser)
    parser.add_argument("--slo", metavar="LIMITS", help="count requests within these limits: ttft=500ms,tpot=50ms")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    add_option_flags(parser, "engine", "replicas", "record", without=("save_logits",))


def run(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    from chairlift.sim.run import run as simulated
    from chairlift.telemetry.report import Slo
    from chairlift.workload.arrivals import parse_arrivals

    profile = profile_from(options)
    arrivals = parse_arrivals(options.arrivals)
    slo = None if options.slo is None else Slo.parse(options.slo)
    seed = parsed(options, "seed", whole(0))
    with progress(advance, unit=" steps") as watch:
        report = simulated(settings, profile, items_from(options), arrivals, seed, slo, settings.trace, watch)
    if options.json:
        about = {"workload": options.workload, "arrivals": options.arrivals, "profile": profile.name}
        print(json.dumps(about | report.to_json()))
    else:
        print(f"{options.workload}, arrivals {options.arrivals}, profile {profile.name}\n")
        print(report.to_text())
    return 0
