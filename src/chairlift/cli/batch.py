"""`chairlift batch`: the requests of a file, by OpenAI's batch format, answered into another."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.inputs.flags import add_option_flags, arguments_of, parsed, progress, warned_settings, writing
from chairlift.config.options.resolve import OPTIONS
from chairlift.config.options.values import whole
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.cli.talking.batch_file import BatchRequest
    from chairlift.lab.bench.target import Address

HELP = "answer a file of requests (OpenAI's batch format)"
DESCRIPTION = (
    "Answer the requests of a file, JSON lines in OpenAI's batch format, into another file: by a server that is "
    "started for it, or by the one at --url. Answers are written as they come; a line that fails has its error "
    "there."
)
USAGE = "IN OUT [options]"
EPILOG = (
    "exit codes: 0 all answered; 1 some failed; 2 a mistake; 130 interrupted, what was answered is written and "
    "--resume goes on"
)
_SERVERS = ("served_model_name", "seed")  # of the server's options


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("requests", type=Path, metavar="IN", help="file of requests: custom_id, method, url and body")
    parser.add_argument("answers", type=Path, metavar="OUT", help="new file for the answers")
    parser.add_argument("--resume", action="store_true", help="append what OUT has no good answer for")
    parser.add_argument("--url", metavar="URL", help="address of the server to ask (default: start one)")
    parser.add_argument("--api-key", metavar="KEY", help="key for --url (default: the variable OPENAI_API_KEY)")
    parser.add_argument(
        "--concurrency", default="128", metavar="N", help="requests to send at once (default: %(default)s)"
    )
    without = [option.name for option in OPTIONS if option.group == "server" and option.name not in _SERVERS]
    add_option_flags(parser, "model", "server", "engine", "replicas", without=without)


def run(options: argparse.Namespace) -> int:
    warned_settings(options)
    concurrency = parsed(options, "concurrency", whole(1, 4096))
    from chairlift.cli.talking.batch_file import answered, read_requests

    requests = read_requests(options.requests)
    if options.answers.exists():
        if not options.resume:
            raise InvalidConfig(f"{options.answers}: is there already; name a new file, or append to it with --resume")
        done = answered(options.answers)
        requests = [request for request in requests if request.custom_id not in done]
    with writing(options.answers):
        options.answers.open("a").close()
    if not requests:
        print("all requests have been answered before", file=sys.stderr)
        return 0
    with _server(options) as (address, api_key):
        return _answer(requests, options.answers, address, api_key, concurrency)


@contextmanager
def _server(options: argparse.Namespace) -> "Iterator[tuple[Address, str]]":
    """Its address, and the key for it."""
    from chairlift.lab.bench.probe import find_peer
    from chairlift.lab.bench.target import Address

    if options.url is not None:
        address = Address.parse(options.url)
        find_peer(address)
        yield address, options.api_key or os.environ.get("OPENAI_API_KEY", "")
        return
    from chairlift.lab.sim.calibration.serving_path import serving

    print("loading the model ...", file=sys.stderr, flush=True)
    with serving(["--quiet", *arguments_of(options)]) as url:
        key = os.environ.get("CHAIRLIFT_API_KEY") or os.environ.get("VLLM_API_KEY", "")
        yield Address.parse(url), key.partition(",")[0]


def _answer(requests: "list[BatchRequest]", path: Path, address: "Address", api_key: str, concurrency: int) -> int:
    from chairlift.cli.talking.batch_run import outcomes

    started, num_good, num_tokens = time.monotonic(), 0, 0
    with writing(path), path.open("a", encoding="utf-8") as file, progress(_advance, total=len(requests)) as watch:
        for outcome in outcomes(requests, address, api_key, concurrency):
            file.write(outcome.line)
            file.flush()
            num_good += outcome.is_good
            num_tokens += outcome.num_tokens
            if watch is not None:
                watch()
    seconds = max(time.monotonic() - started, 1e-3)
    failed = len(requests) - num_good
    print(
        f"{num_good} of {len(requests)} requests answered{f', {failed} failed' if failed else ''}, in {seconds:.1f} s "
        f"({num_tokens / seconds:.0f} tokens/s); wrote {path}",
        file=sys.stderr,
    )
    return 1 if failed else 0


def _advance(bar: Any) -> None:
    bar.update(1)
