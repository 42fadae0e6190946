"""`chairlift contest`: the llm-serving contest's load client, counting every lost request, and its accuracy check."""

import argparse
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from chairlift.cli.inputs.contest_prompts import gather, named_tokenizer
from chairlift.cli.inputs.flags import add_option_flags, parsed, positive, progress, warn, warned_model, warned_settings
from chairlift.config.options.values import check_new, whole
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.config.settings import Settings
    from chairlift.lab.contest.files import ContestLog
    from chairlift.lab.contest.outcome import ContestOutcome, ContestRun
    from chairlift.lab.contest.requests import ContestRequest

HELP = "run the llm-serving contest's load client, counting lost requests"
DESCRIPTION = (
    "Send a llm-serving server the contest's requests as its own client does, and count every answer; or, with "
    "--accuracy, put a model through its accuracy check."
)
USAGE = "-X RATE [options]"
_TASKS = {1: "alpaca_5010.json", 2: "alpaca_521.json"}  # in the contest's folder: for speed, for accuracy
_PORT = 8835


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-X", "--qps", metavar="RATE", help="rate of requests, per second")
    parser.add_argument(
        "-P", "--port", metavar="N", help=f"port of the server (default: that of --config, else {_PORT})"
    )
    parser.add_argument(
        "-O", "--out_dir", type=Path, default=Path("./"), metavar="DIR",
        help="write the result file to this folder; log and summary go to ./testLog (default: the current folder)",
    )  # fmt: skip
    times = "send S times RATE requests (default: %(default)s)"
    parser.add_argument("-T", "--test_time", "--test-time", default="3600", metavar="S", help=times)
    parser.add_argument(
        "--data", metavar="FILE", help="Alpaca JSON or any workload (default: synthetic, of the contest's lengths)"
    )
    parser.add_argument(
        "--task", metavar="N", help="1: send ./alpaca_5010.json, for speed; 2: ./alpaca_521.json, for accuracy"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="host of the server (default: %(default)s)")
    parser.add_argument(
        "--timeout", default="3600", metavar="S", help="seconds to wait for an answer (default: %(default)s)"
    )
    parser.add_argument("--seed", default="0", metavar="N", help="seed of all random draws (default: %(default)s)")
    section = parser.add_argument_group("accuracy", "The model is run here, or asked at --url.")
    section.add_argument(
        "--accuracy", action="store_true", help="store or compare the logits of the first 500 prompts of --data"
    )
    section.add_argument("--save", type=Path, metavar="DIR", help="store them in this new folder")
    section.add_argument("--against", type=Path, metavar="DIR", help="compare with this folder, ours or the contest's")
    section.add_argument("--url", metavar="URL", help="check this server instead, by log-probabilities and --logits")
    section.add_argument("--logits", type=Path, metavar="DIR", help="logits of --url: its folder of --save-logits")
    add_option_flags(parser, "model", "engine")


def run(options: argparse.Namespace) -> int:
    named_tokenizer(options)
    _take_task(options)
    settings = warned_settings(options)
    if options.accuracy:
        return _check_accuracy(options, settings)
    if any(getattr(options, name) is not None for name in ("save", "against", "url", "logits")):
        raise InvalidConfig("--save, --against, --url and --logits are for --accuracy")
    if options.qps is None:
        raise InvalidConfig("-X: missing; a load needs it, as in -X 150 -P 8835 -O ./ -T 10")
    return _load(options, settings)


def _take_task(options: argparse.Namespace) -> None:
    """Replaces `--task` by the file that it names."""
    task = parsed(options, "task", whole(1, 2))
    if task is None:
        return
    if options.data is not None:
        raise InvalidConfig("--task and --data both name the prompts: give one of them")
    options.data = _TASKS[task]
    if not Path(options.data).is_file():
        raise InvalidConfig(
            f"--task {task} sends {options.data}, which is not in this folder: go to the contest's, or use --data FILE"
        )
    if task == 2 and not options.accuracy:
        warn(["--task 2: a server of chairlift stores logits with `serve --save-logits DIR` alone"])


def _check_accuracy(options: argparse.Namespace, settings: "Settings") -> int:
    if (options.save is None) == (options.against is None):
        raise InvalidConfig("--accuracy: give a new folder with --save, or one to compare with with --against")
    if options.logits is not None and options.url is None:
        raise InvalidConfig("--logits: is for --url")
    from chairlift.build import let_threads_sleep

    let_threads_sleep()
    from chairlift.lab.contest.accuracy import NUM_PROMPTS, ContestSubject, ServedContestSubject
    from chairlift.lab.contest.objects import add_objects
    from chairlift.lab.verify.opened import PromptSpec
    from chairlift.lab.verify.store import against_folder, save

    if options.save is not None:
        check_new(options.save, "--save")
    elif not options.against.is_dir():
        raise InvalidConfig(f"--against {options.against}: no such folder")
    model = warned_model(settings) if options.url is None else None
    prompts, _ = gather(options, settings, NUM_PROMPTS, model)
    compare = save if options.save is not None else against_folder
    spec = PromptSpec(prompts=[text for text, _ in prompts])
    subject: ContestSubject | ServedContestSubject
    if model is None:
        subject = ServedContestSubject(options.url, options.logits, prompts)
    else:
        subject = ContestSubject(model, prompts)
    report = compare(options.save or options.against, subject, spec, lambda *_: None)
    if options.save is not None:
        add_objects(options.save)
    print(report.to_text())
    return report.verdict.exit_code


def _load(options: argparse.Namespace, settings: "Settings") -> int:
    rate, seconds = parsed(options, "qps", positive), parsed(options, "test_time", whole(1))
    timeout_s = parsed(options, "timeout", positive)
    import uvloop

    from chairlift.lab.bench.probe import find_peer
    from chairlift.lab.bench.target import Address
    from chairlift.lab.contest.client import ContestClient, check_route
    from chairlift.lab.contest.files import ContestLog, open_folders, write_files
    from chairlift.lab.contest.requests import timed_requests

    port = settings.port if options.config is not None else _PORT
    address = Address(options.host, parsed(options, "port", whole(1, 65535)) or port)
    num = max(1, int(seconds * rate))
    prompts, num_cases = gather(options, settings, num)
    requests = timed_requests(prompts, rate, num, parsed(options, "seed", whole(0)))
    open_folders(options.out_dir)
    peer = find_peer(address)
    check_route(address)
    with ContestLog() as log:
        _begin(log, requests, num_cases, rate)
        with progress(lambda bar: bar.update(), total=num, unit=" answers") as advance:

            def on_end(outcome: "ContestOutcome") -> None:
                log.ended(outcome, num)
                if advance is not None:
                    advance()

            result = uvloop.run(ContestClient(address, peer, timeout_s, on_end).run(requests))
        paths = write_files(options.out_dir, rate, result)
        log.say(result.in_words())
        log.say(_last_line(result))
    return _report(result, paths)


def _begin(log: "ContestLog", requests: "list[ContestRequest]", num_cases: int, rate: float) -> None:
    from chairlift.lab.contest.requests import interval_s

    log.say(f"testcases length is {num_cases}")
    log.say(f"thread_tasks length is {len(requests)}")
    log.say(f"Start send request, avg interval is {interval_s(rate)}")
    for before, after in pairwise(requests):
        log.say(f"poisson random interval time is {after.at_s - before.at_s:.3f}s")


def _last_line(result: "ContestRun") -> str:
    return f"All Tasks Done; Exec Time is {result.exec_time}"


def _report(result: "ContestRun", paths: tuple[Path, ...]) -> int:
    from chairlift.lab.contest.client import INTERRUPTED

    for reason, count in result.reasons():
        print(f"chairlift: {count} requests: {reason}", file=sys.stderr)
    print(f"{', '.join(map(str, paths))}: {result.in_words()}")
    print(_last_line(result))
    if result.stopped == INTERRUPTED:
        return 130
    return 1 if result.stopped or result.num_lost else 0
