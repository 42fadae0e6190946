"""`chairlift contest`: the llm-serving contest's load client, which counts what gets lost."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli import contest_accuracy as accuracy
from chairlift.cli.contest_prompts import gather, named_tokenizer
from chairlift.cli.flags import add_option_flags, settings_from, show_warnings
from chairlift.cli.simulate import number, positive
from chairlift.config.values import whole
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.config.settings import Settings
    from chairlift.contest.files import ContestLog
    from chairlift.contest.outcome import ContestOutcome, ContestRun
    from chairlift.contest.requests import ContestRequest

_NEEDED = {"-X": "qps", "-P": "port", "-O": "out_dir"}


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "contest",
        help="the llm-serving contest's load client, counting what gets lost",
        description="Send a llm-serving server the contest's requests as its own client does, and count every answer; "
        "or, with --accuracy, put a model through its accuracy check.",
        allow_abbrev=False,
    )
    parser.add_argument("-X", "--qps", metavar="RATE", help="requests a second")
    parser.add_argument("-P", "--port", metavar="N", help="the server's port")
    parser.add_argument("-O", "--out_dir", type=Path, metavar="DIR", help="where results and log go")
    parser.add_argument(
        "-T",
        "--test_time",
        "--test-time",
        default="3600",
        metavar="S",
        help="S times RATE requests are sent (default: %(default)s)",
    )
    parser.add_argument(
        "--data", metavar="FILE", help="Alpaca JSON, or any workload (default: made up, of the contest's lengths)"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="the server's (default: %(default)s)")
    parser.add_argument("--timeout", default="3600", metavar="S", help="for an answer (default: %(default)s)")
    parser.add_argument("--seed", default="0", metavar="N", help="of all that is drawn (default: %(default)s)")
    accuracy.add_flags(parser)
    add_option_flags(parser, "model", "engine")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    named_tokenizer(options)
    settings = settings_from(options)
    show_warnings(settings)
    if options.accuracy:
        return accuracy.run(options, settings)
    accuracy.refuse_flags(options)
    missing = [flag for flag, name in _NEEDED.items() if getattr(options, name) is None]
    if missing:
        raise InvalidConfig(
            f"{', '.join(missing)}: missing; a load needs -X, -P and -O, as in -X 150 -P 8835 -O ./ -T 10"
        )
    return _load(options, settings)


def _load(options: argparse.Namespace, settings: "Settings") -> int:
    rate, seconds = number(options, "qps", positive), number(options, "test_time", whole(1))
    timeout_s = number(options, "timeout", positive)
    import uvloop

    from chairlift.bench.probe import find_peer
    from chairlift.bench.target import Address
    from chairlift.contest.client import ContestClient
    from chairlift.contest.files import ContestLog, open_folder, write_files
    from chairlift.contest.requests import timed_requests
    from chairlift.contest.route import check_route

    address = Address(options.host, number(options, "port", whole(1, 65535)))
    num = max(1, int(seconds * rate))
    prompts, num_cases = gather(options, settings, num)
    requests = timed_requests(prompts, rate, num, number(options, "seed", whole(0)))
    open_folder(options.out_dir)
    peer = find_peer(address)
    check_route(address)
    with ContestLog(options.out_dir) as log:
        _begin(log, requests, num_cases, rate)
        with _progress(num) as advance:

            def told(outcome: "ContestOutcome") -> None:
                log.ended(outcome, num)
                advance()

            result = uvloop.run(ContestClient(address, peer, timeout_s, told).run(requests))
        path = write_files(options.out_dir, rate, result)
        log.say(result.in_words())
        log.say(_last_line(result))
    return _report(result, path)


def _begin(log: "ContestLog", requests: "list[ContestRequest]", num_cases: int, rate: float) -> None:
    from chairlift.contest.requests import interval_s

    log.say(f"testcases length is {num_cases}")
    log.say(f"thread_tasks length is {len(requests)}")
    log.say(f"Start send request, avg interval is {interval_s(rate)}")
    for before, after in pairwise(requests):
        log.say(f"poisson random interval time is {after.at_s - before.at_s:.3f}s")


def _last_line(result: "ContestRun") -> str:
    return f"All Tasks Done; Exec Time is {result.exec_time}"


def _report(result: "ContestRun", path: Path) -> int:
    for reason, count in result.reasons():
        print(f"chairlift: {count} requests: {reason}", file=sys.stderr)
    print(f"{path}: {result.in_words()}")
    print(_last_line(result))
    from chairlift.contest.client import INTERRUPTED

    if result.stopped == INTERRUPTED:
        return 130
    return 1 if result.stopped or result.num_lost else 0


@contextmanager
def _progress(num: int) -> Iterator[Callable[[], object]]:
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(total=num, unit=" answers", leave=False) as bar:
        yield bar.update
