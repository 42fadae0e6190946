"""`chairlift bench`: a load on a server, measured at its clients."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from errno import EACCES
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.inputs.flags import parsed, writing
from chairlift.cli.inputs.tokenizer import tokenizer_at
from chairlift.cli.inputs.vllm_bench import add_vllm_flags, take_vllm_flags
from chairlift.cli.inputs.workload import add_request_flags, items_from
from chairlift.config.options.values import seconds, whole
from chairlift.config.version import VERSION
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.lab.bench.request_writer import MakePrompt
    from chairlift.lab.bench.result import BenchResult
    from chairlift.lab.bench.target import TargetServer

HELP = "put a load on a server and measure what its clients see"
DESCRIPTION = (
    "Send a workload to any OpenAI-compatible or llm-serving server and measure every streamed answer. docs/bench.md "
    "has the formula of each figure."
)
USAGE = "--workload FILE [options]"
EPILOG = (
    "exit codes: 0 all answered; 1 some failed, the server went away, or none met the SLO; 2 a mistake; 130 "
    "interrupted, what was measured is written"
)
_FILES = ("bench.json", "bench.csv", "bench.html")
APIS = ("auto", "completions", "chat", "llm-serving")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server (default: %(default)s)")
    parser.add_argument(
        "--api", choices=APIS, default="auto",
        help="API to use: completions (prompts as token ids), chat, llm-serving, or auto: ask the server (default: "
        "%(default)s)",
    )  # fmt: skip
    parser.add_argument("--model", metavar="NAME", help="model, as the server names it (default: the server's first)")
    parser.add_argument(
        "--adapters", nargs="+", default=(), metavar="NAME", help="adapters to ask for in turn, instead of the model"
    )
    parser.add_argument("--api-key", metavar="KEY", help="key to send (default: the variable OPENAI_API_KEY)")
    add_request_flags(parser)
    parser.add_argument(
        "--prompts", choices=("ids", "text"),
        help="kind of synthetic prompts: token ids (default for completions) or text, counted by --tokenizer if given",
    )  # fmt: skip
    parser.add_argument(
        "--vocab-size", default="32000", metavar="N", help="draw synthetic token ids below N (default: %(default)s)"
    )
    parser.add_argument(
        "--ignore-eos", action=argparse.BooleanOptionalAction, default=True,
        help="ask for answers of exactly the workload's lengths (default: on)",
    )  # fmt: skip
    parser.add_argument(
        "--warmup", default="0", metavar="N", help="requests to send before the run, not counted (default: %(default)s)"
    )
    parser.add_argument("--clients", metavar="N", help="client processes (default: one for every four cores)")
    parser.add_argument(
        "--timeout", default="600", metavar="S", help="seconds to wait for an answer (default: %(default)s)"
    )
    parser.add_argument("--slo", metavar="LIMITS", help="count requests within these limits: ttft=500ms,tpot=50ms")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder for bench.json, bench.csv and bench.html; not one of another run",
    )
    parser.add_argument("--title", metavar="TEXT", help="title of the page (default: the model and the workload)")
    parser.add_argument("--json", action="store_true", help="print the JSON of bench.json instead of a table")
    parser.add_argument(
        "--diff", nargs=2, type=Path, metavar=("A.json", "B.json"), help="compare two results; nothing is sent"
    )
    add_vllm_flags(parser)


def run(options: argparse.Namespace) -> int:
    if options.diff is not None:
        from chairlift.lab.bench.diff import diff

        print(diff(*options.diff))
        return 0
    take_vllm_flags(options)
    result = _measure(options)
    title = options.title or _title(result)
    print(result.to_json() if options.json else f"{title}\n\n{result.to_text()}", flush=True)
    if options.out is not None:
        _write(result, title, options.out)
    return _exit_code(result)


def _measure(options: argparse.Namespace) -> "BenchResult":
    from chairlift.lab.bench.display import Display
    from chairlift.lab.bench.messages import LoadPlan
    from chairlift.lab.bench.request_writer import RequestWriter
    from chairlift.lab.bench.result import summarize
    from chairlift.lab.bench.run import num_clients
    from chairlift.lab.bench.run import run as run_load
    from chairlift.lab.workload.arrivals import parse_arrivals
    from chairlift.telemetry.report import Slo

    slo = None if options.slo is None else Slo.parse(options.slo)
    seed, num_warm_up = parsed(options, "seed", whole(0)), parsed(options, "warmup", whole(0, 10**6))
    clients = parsed(options, "clients", whole(1, 256))
    timeout_s = parsed(options, "timeout", seconds)
    arrivals = parse_arrivals(options.arrivals)
    items = list(arrivals.apply(items_from(options), seed))
    if not items:
        raise InvalidConfig(f"{options.workload}: there are no requests in it that are to be kept")
    target, peer = _find(options)
    adapters = options.adapters[: len(items)]
    writer = RequestWriter(target, _make(options, target, seed), _make(options, target, -1 - seed), adapters)
    load = LoadPlan(
        target=target,
        peer=peer,
        trials=writer.trials(items),
        requests=writer.requests(items),
        warm_up=writer.warm_up(items, num_warm_up),
        concurrency=arrivals.concurrency,
        num_clients=num_clients(clients, len(items), arrivals.concurrency),
        timeout_s=timeout_s,
    )
    if options.out is not None:
        with writing(f"--out {options.out}"):  # refused now, not after an hour's run
            options.out.mkdir(parents=True, exist_ok=True)
            for name in _FILES:
                if (options.out / name).exists():
                    raise InvalidConfig(f"--out {options.out}: {name} of another run is there; name another folder")
            if not os.access(options.out, os.W_OK):
                raise PermissionError(EACCES, os.strerror(EACCES))
    display = Display(sys.stderr)
    try:
        measured = run_load(load, display.show)
    finally:
        display.close()
    return summarize(measured, _about(options, target, adapters), slo)


def _find(options: argparse.Namespace) -> "tuple[TargetServer, str]":
    from chairlift.lab.bench.probe import find_peer, find_target
    from chairlift.lab.bench.target import Address, Api

    address = Address.parse(options.url)
    peer = find_peer(address)
    key = options.api_key or os.environ.get("OPENAI_API_KEY", "")
    api = None if options.api == "auto" else Api(options.api)
    target = find_target(address, api, options.model, key, options.ignore_eos)
    if options.adapters and target.api is Api.LLM_SERVING:
        raise InvalidConfig("--adapters: the llm-serving API knows none; use --api completions or chat")
    return target, peer


def _make(options: argparse.Namespace, target: "TargetServer", seed: int) -> "MakePrompt":
    from chairlift.lab.bench.request_writer import text_prompts, token_prompts
    from chairlift.lab.bench.target import Api

    takes_ids = target.api is Api.COMPLETIONS
    if options.prompts == "ids" and not takes_ids:
        raise InvalidConfig(f"--prompts ids: the {target.api} API takes text alone")
    if takes_ids and options.prompts != "text":
        return token_prompts(seed, parsed(options, "vocab_size", whole(2, 65536)))
    if options.tokenizer is None:
        return text_prompts(seed, None)
    tokenizer = tokenizer_at(options.tokenizer)
    return text_prompts(seed, lambda text: len(tokenizer.encode(text, add_special=False)))


def _about(options: argparse.Namespace, target: "TargetServer", adapters: Sequence[str]) -> dict[str, Any]:
    from chairlift.lab.bench.diff import MUST_MATCH

    return {
        "chairlift": VERSION,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "url": target.url,
        "api": str(target.api),
        "model": target.model,
        "adapters": list(adapters),
    } | {name: getattr(options, name) for name in MUST_MATCH}


def _title(result: "BenchResult") -> str:
    from chairlift.lab.bench.diff import asked

    about = result.about
    return f"{asked(about)}: {Path(about['workload']).name}, arrivals {about['arrivals']}"


def _write(result: "BenchResult", title: str, folder: Path) -> None:
    from chairlift.lab.bench.page import to_html

    contents = (result.to_json(), result.to_csv(), to_html(result, title))
    with writing(f"--out {folder}"):
        for name, content in zip(_FILES, contents, strict=True):
            (folder / name).write_text(content)
    print(f"wrote {', '.join(str(folder / name) for name in _FILES)}", file=sys.stderr)


def _exit_code(result: "BenchResult") -> int:
    from chairlift.lab.bench.run import INTERRUPTED

    figures = result.figures
    if result.stopped == INTERRUPTED:
        return 130
    if figures.good == 0:
        print(f"chairlift: no request was answered in full within {figures.slo}", file=sys.stderr)
    return 1 if result.stopped or figures.failed or figures.good == 0 else 0
