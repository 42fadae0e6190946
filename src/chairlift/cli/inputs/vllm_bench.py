"""`vllm bench serve`'s flags for `chairlift bench`: what they say, in ours.

Always: one of theirs either counts, or is refused or ignored with a line; ours and theirs for one thing are refused.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chairlift.cli.inputs.flags import add_foreign_flag, parsed, positive, warn
from chairlift.config.options.foreign.vllm_bench import VLLM_BENCH
from chairlift.config.options.values import whole
from chairlift.core.errors import InvalidConfig

_FILES = ("sharegpt", "burstgpt", "custom")
_COUNT, _INPUT, _OUTPUT = 1000, 1024, 128  # vLLM's
_LIMITS = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"}  # of --goodput


def add_vllm_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", nargs="?", help=argparse.SUPPRESS)  # the word after `vllm bench`
    taken = {flag for action in parser._actions for flag in action.option_strings}
    for foreign in VLLM_BENCH:
        add_foreign_flag(parser, foreign, taken)


def take_vllm_flags(options: argparse.Namespace) -> None:
    """Sets our flags by theirs."""
    if options.kind not in (None, "serve"):
        way_out = "; `chairlift serve` a model first" if options.kind in ("latency", "throughput") else ""
        raise InvalidConfig(f"{options.kind}: bench measures a server, so only the word `serve` may follow it{way_out}")
    given = {each.name: each for each in VLLM_BENCH if getattr(options, each.name) is not None}
    if options.out is not None or "result_dir" in given:
        given.pop("save_result", None)
    for foreign in given.values():
        if not foreign.option and not foreign.is_needless:
            raise InvalidConfig(f"{foreign.flags[0]}: {foreign.note}")
    warn(f"{each.flags[0]} is ignored: {each.note}" for each in given.values() if each.is_needless)
    theirs = {name: each.value(getattr(options, name)) for name, each in given.items()}
    made = {each.option: each.flags[0] for each in reversed(given.values()) if each.option}
    for option, flag in made.items():
        ours = f"--{option.replace('_', '-')}"
        if option != "model" and getattr(options, option) != options.command.get_default(option):
            raise InvalidConfig(f"{flag} is {ours} here: give one of them")
        setattr(options, option, _MAKERS[option](options, theirs))
    if "workload" in made and options.arrivals == options.command.get_default("arrivals"):
        options.arrivals = "none"


def _url(options: argparse.Namespace, theirs: Mapping[str, Any]) -> str:
    host, port = theirs.get("host", "127.0.0.1"), theirs.get("port", "8000")
    if "base_url" not in theirs:
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"
    if "host" in theirs or "port" in theirs:
        raise InvalidConfig("--base-url: has host and port; leave --host and --port out")
    return str(theirs["base_url"])


def _api(options: argparse.Namespace, theirs: Mapping[str, Any]) -> str:
    asked = {name: str(theirs[name]) for name in ("backend", "endpoint_type", "endpoint") if name in theirs}
    for foreign in VLLM_BENCH:
        if foreign.name in asked and asked[foreign.name] not in foreign.values.values():
            raise InvalidConfig(f"{foreign.flags[0]} must be {foreign.note}, got {asked[foreign.name]!r}")
    if len({*asked.values()}) > 1:
        shown = " and ".join(f"--{name.replace('_', '-')} {getattr(options, name)}" for name in asked)
        raise InvalidConfig(f"{shown} are different APIs: give one of them")
    return asked.popitem()[1]


def _workload(options: argparse.Namespace, theirs: Mapping[str, Any]) -> str:
    name, path = theirs.get("dataset_name"), theirs.get("dataset_path")
    if _is_random(theirs):
        if path is not None:
            raise InvalidConfig("--dataset-path: --dataset-name random draws its requests: give one of them")
        prompt, output = _drawn(options, "random_input_len", _INPUT), _drawn(options, "random_output_len", _OUTPUT)
        return f"lengths:prompt={prompt},output={output},count={parsed(options, 'num_prompts', whole(1)) or _COUNT}"
    if name is not None and name not in _FILES:
        raise InvalidConfig(
            f"--dataset-name must be random, {', '.join(_FILES)}, got {name!r}; --workload takes others"
        )
    if path is None:
        raise InvalidConfig(f"--dataset-path is missing: the file of --dataset-name {name}")
    return str(path)


def _drawn(options: argparse.Namespace, name: str, default: int) -> str:
    """A length, or a range of them."""
    length: int = parsed(options, name, whole(1)) or default
    ratio: float = parsed(options, "random_range_ratio", _ratio) or 0.0
    return f"{max(1, int(length * (1 - ratio)))}-{math.ceil(length * (1 + ratio))}" if ratio else str(length)


def _ratio(value: object) -> float:
    ratio = 0.0 if str(value).strip() in ("0", "0.0") else positive(value)
    if ratio >= 1.0:
        raise ValueError("must be a number from 0 to below 1")
    return ratio


def _is_random(theirs: Mapping[str, Any]) -> bool:
    has_lengths = any(name in theirs for name in ("random_input_len", "random_output_len", "random_range_ratio"))
    return bool(theirs.get("dataset_name", "random" if has_lengths else "") == "random")


def _limit(options: argparse.Namespace, theirs: Mapping[str, Any]) -> str | None:
    return None if _is_random(theirs) else str(theirs["num_prompts"])


def _arrivals(options: argparse.Namespace, theirs: Mapping[str, Any]) -> str:
    is_open = str(theirs.get("request_rate", "inf")) != "inf"
    if "max_concurrency" in theirs:
        if is_open:
            raise InvalidConfig("--max-concurrency: --request-rate sets the arrivals already; give one of them")
        return f"closed:concurrency={parsed(options, 'max_concurrency', whole(1))}"
    if not is_open:
        return "none"
    rate, burstiness = parsed(options, "request_rate", positive), parsed(options, "burstiness", positive) or 1.0
    return f"poisson:rate={rate:g}" if burstiness == 1.0 else f"gamma:rate={rate:g},cv={burstiness**-0.5:g}"


def _slo(options: argparse.Namespace, theirs: Mapping[str, Any]) -> str:
    limits = []
    for given in theirs["goodput"]:
        name, _, milliseconds = given.partition(":")
        if name not in _LIMITS or not milliseconds:
            raise InvalidConfig(f"--goodput must be such as ttft:500 tpot:50 e2el:2000, in milliseconds, got {given!r}")
        limits.append(f"{_LIMITS[name]}={milliseconds}ms")
    return ",".join(limits)


def _out(options: argparse.Namespace, theirs: Mapping[str, Any]) -> Path:
    if "result_dir" not in theirs:
        raise InvalidConfig("--save-result: use --out FOLDER, which gets bench.json, bench.csv and bench.html")
    return Path(theirs["result_dir"])


_MAKERS: Mapping[str, Callable[[argparse.Namespace, Mapping[str, Any]], Any]] = {
    "url": _url,
    "api": _api,
    "model": lambda _, theirs: theirs["served_model_name"],
    "adapters": lambda _, theirs: theirs["lora_modules"],
    "workload": _workload,
    "limit": _limit,
    "output_tokens": lambda _, theirs: theirs["custom_output_len"],
    "arrivals": _arrivals,
    "warmup": lambda _, theirs: theirs["num_warmups"],
    "slo": _slo,
    "out": _out,
    "title": lambda _, theirs: theirs["label"],
}
