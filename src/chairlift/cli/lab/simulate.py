"""`chairlift simulate`: the latencies a workload would see, without a model and faster than real time."""

import argparse
import json

from chairlift.cli.inputs.flags import add_option_flags, parsed, progress, warned_settings
from chairlift.cli.inputs.workload import add_workload_flags, advance, items_from, profile_from
from chairlift.config.options.values import whole

HELP = "run a workload through the scheduler without a model"
DESCRIPTION = "Run a workload through the scheduler on a virtual clock; a profile says how long steps take."
USAGE = "--workload FILE [options]"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_workload_flags(parser)
    parser.add_argument("--slo", metavar="LIMITS", help="count requests within these limits: ttft=500ms,tpot=50ms")
    parser.add_argument(
        "--events", metavar="LIST",
        help='what happens to replicas: "60s lose 3, 90s add 3, 120s drain 1"; replicas are numbered from 0',
    )  # fmt: skip
    parser.add_argument(
        "--autoscale", metavar="SPEC",
        help="replicas by load: LEAST-MOST, with target=TOKENS of load, start=, up= and down= in seconds: "
        "2-16:target=2048,start=60,up=10,down=120",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    add_option_flags(parser, "engine", "replicas", "record", without=("save_logits",))


def run(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    from chairlift.lab.sim.fleet.changes import Changes, parse_autoscale, parse_events
    from chairlift.lab.sim.run import run as simulated
    from chairlift.lab.workload.arrivals import parse_arrivals
    from chairlift.telemetry.report import Slo

    profile = profile_from(options)
    arrivals = parse_arrivals(options.arrivals)
    slo = None if options.slo is None else Slo.parse(options.slo)
    seed = parsed(options, "seed", whole(0))
    changes = None
    if options.events is not None or options.autoscale is not None:
        events = () if options.events is None else parse_events(options.events)
        changes = Changes(events, None if options.autoscale is None else parse_autoscale(options.autoscale))
    with progress(advance, unit=" steps") as watch:
        items = items_from(options)
        report = simulated(settings, profile, items, arrivals, seed, slo, settings.trace, watch, changes)
    if options.json:
        about = {"workload": options.workload, "arrivals": options.arrivals, "profile": profile.name}
        print(json.dumps(about | report.to_json()))
    else:
        print(f"{options.workload}, arrivals {options.arrivals}, profile {profile.name}\n")
        print(report.to_text())
    return 0
