"""`chairlift plan`: the device memory that serving a model would need, before anything is loaded."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.inputs.flags import add_model_argument, add_option_flags, parsed, warn, warned_settings
from chairlift.cli.inputs.text import size
from chairlift.cli.inputs.workload import add_request_flags, items_from, profile_from
from chairlift.config.options.values import num_bytes, whole
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.config.settings import Settings
    from chairlift.models.source import Source
    from chairlift.models.spec import ModelConfig
    from chairlift.runner.memory.forecast import Forecast

HELP = "show what a model would take of a device's memory"
DESCRIPTION = "Show what serving a model would take of a device's memory, before anything is loaded."
USAGE = "[MODEL] [options]"
EPILOG = "--device may also name a GPU that is not here: h200, h100, a100, a10g, l4, t4, rtx-4090 and others."
_HERE = ("auto", "cpu", "cuda")  # what --device names on every command
_PARTS = ("total", "others", "weights", "activations", "graphs", "kv", "free")  # of the memory
_SMALLEST = 64 * 2**20  # bytes of a device
_LENGTHS = (32768, 8192, 2048, 512)  # request lengths to count, besides the longest


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument(
        "--device-memory", metavar="SIZE", help="memory of the device, such as 80GB; of a CPU what is free"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    fleet = parser.add_argument_group("how many replicas a workload needs")
    fleet.add_argument(
        "--fleet", action="store_true", help="find the fewest replicas that meet --slo for --workload, by simulation"
    )
    fleet.add_argument("--profile", metavar="FILE", help="profile: a file or a built-in name (default: h200-llama2-7b)")
    fleet.add_argument("--slo", metavar="LIMITS", help="limits to meet, as in ttft_p99=500ms,tpot_p50=30ms")
    fleet.add_argument(
        "--max-replicas", default="64", metavar="N", help="replicas to try at most (default: %(default)s)"
    )
    add_request_flags(parser)
    add_option_flags(parser, "model", "engine", "replicas", without=("tokenizer", "replicas", "roles"))


def _device_bytes(value: object) -> int:
    size = num_bytes(value)
    if size < _SMALLEST:
        raise ValueError("must be the size of a device, such as 80GB; without a unit it is bytes")
    return size


def run(options: argparse.Namespace) -> int:
    if options.fleet:
        return _run_fleet(options)
    if options.workload is not None or options.slo is not None:
        raise InvalidConfig("--workload and --slo are for plan --fleet: how many replicas a workload needs")
    from chairlift.runner.machine.devices import NAMES, find_device
    from chairlift.runner.memory.forecast import forecast

    memory = parsed(options, "device_memory", _device_bytes)
    named = options.device if options.device in NAMES else None
    if named is not None:
        options.device = "cuda"
    elif options.device is not None and options.device not in _HERE:
        raise InvalidConfig(f"--device must be one of {', '.join((*_HERE, *NAMES))}, got {options.device!r}")
    settings = warned_settings(options)
    source, config = _model(settings)
    warn(config.warnings)
    device = find_device(named or settings.device, memory)
    warn([f"{device.name}: {device.caution}"] if device.caution else ())
    found = forecast(settings, source, config, device)
    print(json.dumps(_facts(source.name, found)) if options.json else _table(source.name, found))
    return 0


def _run_fleet(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    from chairlift.lab.tune.fleet import FleetWork, fleet_json, fleet_size, fleet_table
    from chairlift.lab.tune.targets import Targets

    if options.which is not None:
        raise InvalidConfig(
            f"--fleet is planned by --profile, which has the model's step times; leave {options.which} out"
        )
    if settings.roles is not None:
        raise InvalidConfig(
            f"roles {settings.roles} are of one number of replicas, and --fleet tries many; leave them out here, and "
            "compare splits of what it finds with `chairlift compare --replicas N --vary roles=none,prefill:1,decode:3`"
        )
    if options.slo is None:
        raise InvalidConfig("--slo is missing: what the fleet has to meet, as in ttft_p99=500ms")
    most = parsed(options, "max_replicas", whole(1, 1024))
    profile, targets = profile_from(options), Targets.parse(options.slo)
    items = tuple(items_from(options))
    work = FleetWork(settings, profile, items, options.arrivals, targets, parsed(options, "seed", whole(0)))
    found = fleet_size(work, most, lambda text: print(text, file=sys.stderr))
    print(json.dumps(fleet_json(work, found)) if options.json else "\n".join(fleet_table(work, found)))
    return 0


def _model(settings: "Settings") -> "tuple[Source, ModelConfig]":
    """The weights are not needed, only their description."""
    from chairlift.models.fallback import check_fallback
    from chairlift.models.files.hf import load_hf
    from chairlift.models.source import Source, find_source, load_model_config

    path = Path(settings.model or "").expanduser()
    if path.suffix.lower() == ".json" and path.is_file():
        if settings.model_cfg is not None:
            raise InvalidConfig(f"--model-cfg {settings.model_cfg}: {path} says it all; leave --model-cfg out")
        name = path.resolve().parent.name if path.name == "config.json" else path.stem
        config = load_hf(path, settings.model_impl)
        if config.fallback is not None:
            check_fallback(settings)
        return Source("folder", path.parent, name), config
    source = find_source(settings, has_weights=False)
    return source, load_model_config(source, settings)


def _facts(name: str, found: "Forecast") -> dict[str, Any]:
    budget, limits = found.budget, found.limits
    return {
        "model": name,
        "device": found.device.name,
        "dtype": found.dtype,
        "kv_dtype": found.kv_dtype,
        "quantize": found.quantize,
        "parameters": found.num_parameters,
        "parameters_bytes": found.parameter_bytes,
        "ranks": found.num_ranks,
        "share": found.share,
        **{f"{part}_bytes": getattr(budget, part) for part in _PARTS},
        "kv_token_bytes": found.kv_token_bytes,
        "block_size": limits.block_size,
        "num_blocks": limits.num_blocks,
        "kv_tokens": limits.max_pool_tokens,
        "groups": [list(group) for group in limits.groups],
        "max_model_len": limits.max_model_len,
        "max_running": limits.max_running,
        "max_step_tokens": limits.max_step_tokens,
        "requests": {str(length): num_at_once(found, length) for length in _lengths(found)},
        "tokens": {str(length): num_tokens(found, length) for length in _lengths(found)},
    }


_KINDS = {"window": "some layers have a window of {:,}", "fixed": "some layers have a state in place of tokens"}


def _table(name: str, found: "Forecast") -> str:
    budget, limits, share = found.budget, found.limits, found.share
    has = f"{size(budget.total)} free" if share is None else f"{size(budget.total)}, of which {share:g} may be used"
    counts = ", ".join(f"{num_at_once(found, length):,} of {length:,}" for length in _lengths(found))
    ranks = "" if found.num_ranks == 1 else f", each of {found.num_ranks} ranks"
    lines = [f"{name} on {found.device.name}{ranks}: {has}", ""]
    lines += [f"  {what:<12} {size(amount):>10}  {why}".rstrip() for what, amount, why in _rows(found)]
    lines += ["", f"requests at once, by their tokens in all: {counts}; {limits.max_running:,} at most"]
    if limits.groups:
        tokens = ", ".join(f"{num_tokens(found, length):,} of {length:,}" for length in _lengths(found))
        kinds = ", ".join(_KINDS[group.kind].format(group.reach) for group in limits.groups)
        lines.append(f"tokens that fit, by the tokens of a request: {tokens} ({kinds})")
    if found.lowered is not None:
        lines.append(found.lowered)
    return "\n".join(lines)


def _rows(found: "Forecast") -> list[tuple[str, int, str]]:
    budget, limits = found.budget, found.limits
    kept = "" if found.kv_dtype == found.dtype else f" in {found.kv_dtype}"
    step = f"the largest step: {limits.max_step_tokens:,} tokens, {limits.max_running:,} requests"
    tokens = f"{limits.max_pool_tokens:,} tokens of {size(found.kv_token_bytes)}{kept}"
    if limits.groups:  # what a token takes depends on how far the request has come
        tokens = f"{limits.max_pool_tokens:,} tokens of a single request{kept}"
    part = "" if found.num_ranks == 1 else "a part of "
    kept_as = found.dtype if found.quantize == "none" else f"{found.quantize}, computed in {found.dtype}"
    beside = "rotations by position"
    if found.share is not None:
        beside = "the libraries' code, " + beside + ", slots of adapters" * (limits.num_adapter_slots > 0)
    rows = [
        ("weights", found.parameter_bytes, f"{part}{found.num_parameters / 1e6:,.1f} million parameters in {kept_as}"),
        ("beside them", budget.weights - found.parameter_bytes, beside),
        ("activations", budget.activations, step),
        ("KV cache", budget.kv, f"{tokens}, in {limits.num_blocks:,} blocks of {limits.block_size}"),
        ("free", budget.free, ""),
    ]
    if found.share is not None:
        rows[-1] = ("free", budget.free, f"{size(round((1.0 - found.share) * budget.total))} of it beyond --memory")
        rows.insert(2, ("others", budget.others, "the driver and other processes on the device"))
        rows.insert(4, ("graphs", budget.graphs, "captured steps"))
    return rows


def num_at_once(found: "Forecast", length: int) -> int:
    """Requests of this many tokens, prompt and answer, that the cache holds and max_running allows."""
    limits = found.limits
    return min(limits.max_running, limits.num_blocks // limits.pages.num_decoding(length))


def num_tokens(found: "Forecast", length: int) -> int:
    """Of requests of this length, with no bound on their number."""
    limits = found.limits
    return limits.num_blocks * length // limits.pages.num_decoding(length)


def _lengths(found: "Forecast") -> list[int]:
    longest = found.limits.max_model_len
    return [longest, *(length for length in _LENGTHS if length < longest)]
