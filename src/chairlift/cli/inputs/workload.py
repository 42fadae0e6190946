"""Which requests a command runs, when they arrive, and on which profile."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from chairlift.cli.inputs.flags import parsed, positive
from chairlift.cli.inputs.tokenizer import add_tokenizer_flag, encoder_by, tokenizer_at
from chairlift.config.options.values import whole
from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.item import OUTPUT_TOKENS

if TYPE_CHECKING:
    from chairlift.lab.sim.profile import Profile
    from chairlift.lab.workload.item import Item


def add_workload_flags(parser: argparse.ArgumentParser) -> None:
    """Requests and profile, for every command that simulates."""
    add_request_flags(parser)
    parser.add_argument(
        "--profile", metavar="FILE", help="profile: a file or a built-in name (default: h200-llama2-7b)"
    )
    parser.add_argument("--model", metavar="NAME", help="model the profile must be of (default: any)")


def add_request_flags(parser: argparse.ArgumentParser) -> None:
    """Which requests, and when they arrive."""
    parser.add_argument(
        "--workload", metavar="FILE",
        help="requests: lengths (JSON lines), a trace (Azure, BurstGPT, Mooncake), prompts (ShareGPT, Alpaca, own), "
        "contest (the llm-serving contest's lengths) or lengths:prompt=N|LOW-HIGH,output=N|LOW-HIGH,count=N,n=N",
    )  # fmt: skip
    parser.add_argument(
        "--arrivals", default="trace", metavar="SPEC",
        help="arrival times: trace[:scale=S], none (all at once), poisson:rate=R, gamma:rate=R,cv=C, constant:rate=R, "
        "ramp:from=R,to=R,over=S or closed:concurrency=N (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--limit", metavar="N", help="use the first N requests only (default: all)")
    parser.add_argument("--divide-lengths", metavar="D", help="divide prompt and output lengths by D (default: 1)")
    parser.add_argument(
        "--max-length", metavar="N", help="leave out requests of more than N tokens in all (default: no limit)"
    )
    parser.add_argument(
        "--output-tokens", default=str(OUTPUT_TOKENS), metavar="N",
        help="tokens to generate where the workload gives no number (default: %(default)s)",
    )  # fmt: skip
    add_tokenizer_flag(parser)
    parser.add_argument("--seed", default="0", metavar="N", help="seed of all random draws (default: %(default)s)")


def items_from(options: argparse.Namespace) -> "Iterator[Item]":
    from chairlift.lab.workload.file import load_items

    if options.workload is None:
        raise InvalidConfig("--workload is missing: a file, contest, or lengths:prompt=N,output=N,count=N")
    return load_items(
        options.workload,
        parsed(options, "limit", whole(1)),
        parsed(options, "divide_lengths", positive) or 1.0,
        parsed(options, "seed", whole(0)),
        parsed(options, "max_length", whole(2)),
        encoder_by(lambda: tokenizer_at(options.tokenizer), parsed(options, "output_tokens", whole(1))),
    )


def profile_from(options: argparse.Namespace) -> "Profile":
    from chairlift.lab.sim.profile import DEFAULT, load_profile

    profile = load_profile(options.profile or DEFAULT)
    if options.model is not None:
        profile.check_model(options.model)
    return profile


def advance(bar: Any, now: float) -> None:
    """One more step, at this simulated time."""
    if bar.update():
        bar.set_postfix_str(f"{now:.1f} simulated s", refresh=False)
