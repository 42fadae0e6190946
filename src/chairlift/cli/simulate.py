"""`chairlift simulate`: what a workload would see, without a model and faster than it happens."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chairlift.cli.flags import add_option_flags, settings_from, show_warnings
from chairlift.cli.tokenizer import add_tokenizer_flag, encoder_with
from chairlift.config.values import Parser, whole
from chairlift.core.errors import InvalidConfig
from chairlift.workload.encoder import OUTPUT_TOKENS

if TYPE_CHECKING:
    from chairlift.workload.item import Item

Watch = Callable[[float], None]


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "simulate",
        help="run a workload through the scheduler without a model",
        description="Run a workload through the scheduler on a virtual clock; a profile says how long steps take.",
        allow_abbrev=False,
    )
    add_workload_flags(parser)
    parser.add_argument("--slo", metavar="LIMITS", help="count requests within these limits: ttft=500ms,tpot=50ms")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    add_option_flags(parser, "engine", "record")
    parser.set_defaults(run=run)


def add_workload_flags(parser: argparse.ArgumentParser) -> None:
    """What is run, on what: for every command that simulates."""
    add_request_flags(parser)
    parser.add_argument("--profile", metavar="FILE", help="a profile's file or built-in name (default: h200-llama2-7b)")
    parser.add_argument("--model", metavar="NAME", help="refuse a profile of another model")


def add_request_flags(parser: argparse.ArgumentParser, is_required: bool = True) -> None:
    """Which requests, and when they come."""
    parser.add_argument(
        "--workload", required=is_required, metavar="FILE",
        help="lengths (JSON lines), a trace (Azure, BurstGPT, Mooncake), prompts (ShareGPT, Alpaca, your own), "
        "contest (the llm-serving contest's lengths) or lengths:prompt=N|LOW-HIGH,output=N|LOW-HIGH,count=N",
    )  # fmt: skip
    parser.add_argument(
        "--arrivals", default="trace", metavar="SPEC",
        help="trace[:scale=S], none (all at once), poisson:rate=R, gamma:rate=R,cv=C, constant:rate=R, "
        "ramp:from=R,to=R,over=S or closed:concurrency=N (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--limit", metavar="N", help="only the first N requests")
    parser.add_argument("--divide-lengths", metavar="D", help="make prompts and outputs D times shorter")
    parser.add_argument("--max-length", metavar="N", help="leave out requests of more than N tokens in all")
    parser.add_argument(
        "--output-tokens", default=str(OUTPUT_TOKENS), metavar="N",
        help="tokens to generate where prompts come without a number (default: %(default)s)",
    )  # fmt: skip
    add_tokenizer_flag(parser)
    parser.add_argument("--seed", default="0", metavar="N", help="of everything that is drawn (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    show_warnings(settings)
    from chairlift.sim.profile import DEFAULT, load_profile
    from chairlift.sim.run import run as simulated
    from chairlift.telemetry.report import Slo
    from chairlift.workload.arrivals import parse_arrivals

    profile = load_profile(options.profile or DEFAULT)
    if options.model is not None:
        profile.check_model(options.model)
    arrivals = parse_arrivals(options.arrivals)
    slo = None if options.slo is None else Slo.parse(options.slo)
    with progress() as watch:
        report = simulated(
            settings,
            profile,
            items_from(options),
            arrivals,
            number(options, "seed", whole(0)),
            slo,
            settings.trace,
            watch,
        )
    if options.json:
        about = {"workload": options.workload, "arrivals": options.arrivals, "profile": profile.name}
        print(json.dumps(about | report.to_json()))
    else:
        print(f"{options.workload}, arrivals {options.arrivals}, profile {profile.name}\n")
        print(report.to_text())
    return 0


def items_from(options: argparse.Namespace) -> "Iterator[Item]":
    from chairlift.workload.read import load_items

    limit = None if options.limit is None else number(options, "limit", whole(1))
    divide = 1.0 if options.divide_lengths is None else number(options, "divide_lengths", positive)
    longest = None if options.max_length is None else number(options, "max_length", whole(2))
    load_encoder = encoder_with(options.tokenizer, number(options, "output_tokens", whole(1)))
    return load_items(options.workload, limit, divide, number(options, "seed", whole(0)), longest, load_encoder)


def number(options: argparse.Namespace, name: str, parse: Parser) -> Any:
    given = getattr(options, name)
    try:
        return parse(given)
    except ValueError as error:
        raise InvalidConfig(f"--{name.replace('_', '-')} {error}, got {given!r}") from error


def positive(value: object) -> float:
    try:
        by = float(str(value))
    except ValueError:
        by = 0.0
    if not 0.0 < by < 1e9:
        raise ValueError("must be a number above 0")
    return by


@contextmanager
def progress() -> Iterator[Watch | None]:
    """On a terminal: steps so far and where the simulated clock stands."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(unit=" steps", leave=False) as bar:

        def watch(now: float) -> None:
            if bar.update():
                bar.set_postfix_str(f"{now:.1f} simulated s", refresh=False)

        yield watch
