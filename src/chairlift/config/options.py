"""The one table of options: flags, YAML keys and environment names all derive from it.

    max_running     --max-running     max_running: (or max-running:)     CHAIRLIFT_MAX_RUNNING

Always: a flag wins over YAML, YAML over the environment, the environment over the default. An unknown name or a bad
value is refused with the option's name and what is allowed. Does not know how flags are parsed or files are found.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import yaml

from chairlift.config import llm_serving
from chairlift.config.hf import DTYPES
from chairlift.config.rules import rule_text
from chairlift.config.settings import Settings
from chairlift.config.values import (
    Parser,
    boolean,
    existing_path,
    new_file,
    num_bytes,
    one_of,
    seconds,
    seconds_or_0,
    share,
    text,
    whole,
)
from chairlift.core.errors import InvalidConfig
from chairlift.core.scheduling.preemption import MODES

Group = Literal["model", "engine", "server", "record"]
_NOTHING: Mapping[str, str] = MappingProxyType({})
_PREFIX = "CHAIRLIFT_"
UNTRIED_DEVICES = ("mps", "xpu", "npu")  # that torch may have: by name alone, and on torch's operations
_EXCLUSIVE = {"num_blocks": "kv_memory", "kv_memory": "num_blocks"}


@dataclass(frozen=True, slots=True)
class Option:
    name: str  # a field of Settings
    group: Group
    parse: Parser
    hint: str  # the value's shape in the help; empty for an on/off option
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        return _PREFIX + self.name.upper()


def _choice(name: str, group: Group, names: tuple[str, ...], help: str) -> Option:
    return Option(name, group, one_of(*names), "{" + ",".join(names) + "}", help)


_KV_RULE = (
    "KV blocks (default: a quarter of free memory, 256 MiB for the embedded model, up to half where one request of "
    "full length needs it; by --memory on a GPU)"
)
OPTIONS: tuple[Option, ...] = (
    Option("model", "model", text, "MODEL", "folder, .gguf file or hub name, also ORG/NAME:Q4_K_M (default: SmolLM2)"),
    Option("served_model_name", "server", text, "NAME", "name shown to clients (default: the model's)"),
    Option("tokenizer", "model", existing_path, "PATH", "tokenizer file or folder (default: the model's own)"),
    _choice("load_format", "model", ("auto", "dummy"), "dummy: random weights, for measuring"),
    _choice("device", "model", ("auto", "cpu", "cuda", *UNTRIED_DEVICES), "where to compute; auto: cuda, else cpu"),
    _choice("dtype", "model", ("auto", *DTYPES), "what to compute in"),
    _choice(
        "kv_dtype", "model", ("auto", "int8", "fp8"),
        "what keys and values are kept in: int8 on a CPU, fp8 on a GPU; auto: as --dtype",
    ),
    _choice(
        "quantize", "model", ("auto", "none", "stored", "int8", "int4", "fp8"),
        "what weights are kept in: as a GGUF file has them (stored), 8 or 4 bits on a CPU, fp8 on a GPU, or the number "
        "type of --dtype (none); auto: stored on a CPU unless --dtype names a type, else none",
    ),
    _choice("kernels", "model", ("auto", "torch", "native", "triton"), "which operations to use"),
    _choice("attention", "model", ("auto", "triton", "flashinfer"), "kernels for attention on a GPU"),
    Option("exact", "model", boolean, "", "the same bits for a request, whatever shares its steps"),
    Option("memory", "model", share, "SHARE", "of a GPU's memory that may be used in all (default: 0.9)"),
    Option("threads", "model", whole(0, 4096), "N", "CPU threads; 0: all cores"),
    Option("max_model_len", "engine", whole(2), "N", "longest prompt plus output (default: the model's)"),
    Option("max_running", "engine", whole(1, 65536), "N", "requests that share a step (default: by device)"),
    Option("max_step_tokens", "engine", whole(1), "N", "tokens computed in a step (default: by device)"),
    Option("max_step_prompts", "engine", whole(0), "N", "prompts computed in a step; 0: no limit"),
    Option("block_size", "engine", whole(1, 65536), "N", "tokens in a KV block"),
    Option("num_blocks", "engine", whole(1), "N", _KV_RULE),
    Option("kv_memory", "engine", num_bytes, "SIZE", "memory for KV blocks, such as 512MiB"),
    Option("prefix_cache", "engine", boolean, "", "share the KV blocks of equal prompt beginnings"),
    _choice(
        "share_prefixes", "server", ("key", "all"),
        "which requests share prefixes where there are API keys: those of one key or cache_group, or all",
    ),
    Option("policy", "engine", rule_text("policy"), "RULE", "which request is served first (see `chairlift policies`)"),
    Option("prefill", "engine", rule_text("prefill"), "RULE", "which prompts may enter a step"),
    Option("admission", "engine", rule_text("admission"), "RULE", "whether memory allows the next request"),
    _choice("preemption", "engine", MODES, "what becomes of a victim's KV blocks when memory runs out"),
    Option("host_memory", "engine", num_bytes, "SIZE", "memory for blocks that are swapped out (default: as for KV)"),
    Option("host", "server", text, "ADDRESS", "address to listen on"),
    Option("port", "server", whole(0, 65535), "N", "port to listen on"),
    Option("frontends", "server", whole(1, 256), "N", "HTTP processes that share the port (default: by device)"),
    Option("api_key", "server", text, "KEY,...", "clients must send one; better in CHAIRLIFT_API_KEY or a file"),
    Option("api_key_file", "server", existing_path, "FILE", "keys with limits and shares (see docs/access.md)"),
    Option("cors_origin", "server", text, "ORIGIN,...", "sites whose pages may call this server (default: none)"),
    Option("allowed_host", "server", text, "NAME,...", "names to take beside this machine's own, without keys"),
    Option("tls_cert", "server", existing_path, "FILE", "certificate chain for HTTPS, in PEM"),
    Option("tls_key", "server", existing_path, "FILE", "its private key, in PEM"),
    Option("admin_key", "server", text, "KEY", "needed for the admin routes; better in CHAIRLIFT_ADMIN_KEY"),
    Option("admin_host", "server", text, "ADDRESS", "address for the admin routes"),
    Option("admin_port", "server", whole(0, 65535), "N", "port for the admin routes (default: none)"),
    Option("max_body_bytes", "server", num_bytes, "SIZE", "largest request body (default: 8MiB)"),
    Option("max_connections", "server", whole(1), "N", "open connections; more get 503"),
    Option(
        "max_connections_per_address", "server", whole(1), "N",
        "open connections of one address (IPv6: one /64); more get 429 (default: half of --max-connections)",
    ),
    Option("max_receive_seconds", "server", seconds, "S", "for a request to arrive in full; later ones get 408"),
    Option("slow_reader_seconds", "server", seconds, "S", "a client may read nothing before it is cut off"),
    Option("max_waiting", "server", whole(1), "N", "requests without a token yet; more get 429 (an n counts n times)"),
    Option("max_waiting_tokens", "server", whole(1), "N", "tokens of their prompts; more get 429"),
    Option("max_request_seconds", "server", seconds, "S", "a request may take; then 504 (default: no limit)"),
    Option("drain_timeout", "server", seconds, "S", "to finish requests when told to stop (default: no limit)"),
    Option(
        "escape_special_tokens", "model", boolean, "",
        "control tokens that a chat message spells out, such as <|im_end|>, stay text (default: on)",
    ),
    Option("engine_timeout", "server", seconds_or_0, "S", "without a sign of life replace the engine; 0: never"),
    _choice("llm_serving_logprob", "server", ("logit", "logprob"), "what `logprob` is in llm-serving answers"),
    Option("trace", "record", new_file, "FILE", "write every step and event to this file (see `chairlift trace`)"),
    Option("vllm_metric_names", "server", boolean, "", "at /metrics, vLLM's names beside our own"),
    Option("otlp_endpoint", "server", text, "URL", "send a trace of each request there, by OTLP over HTTP"),
    _choice("log_level", "server", ("debug", "info", "warning", "error"), "how much to log"),
    _choice("log_format", "server", ("text", "json"), "how log lines look"),
    Option("log_requests", "server", boolean, "", "log a line for each request that ended"),
    Option("log_prompts", "server", boolean, "", "with prompts and answers in these lines"),
)  # fmt: skip
_BY_NAME = {option.name: option for option in OPTIONS}
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Settings) if field.name in _BY_NAME}


def resolve(
    flags: Mapping[str, object], config: Path | None = None, environment: Mapping[str, str] = _NOTHING
) -> Settings:
    """Settings from the three places a value may come from; a flag that is None was not given."""
    document = {} if config is None else _read_yaml(config)
    translation = None
    if config is not None and llm_serving.is_llm_serving(document):
        translation = llm_serving.translate(document, config)
    named = {option.environment: option.name for option in OPTIONS}
    from_environment = {named[key]: value for key, value in environment.items() if key in named and value != ""}
    values = _merge(
        _parse(from_environment, lambda name: _BY_NAME[name].environment),
        _parse(translation.values if translation else document, lambda name: f"{config}: {name}"),
        _parse(flags, lambda name: _BY_NAME[name].flag if name in _BY_NAME else name),
    )
    warnings = tuple(
        f"the environment variable {key} names no option{did_you_mean(key, named, _PREFIX)}"
        for key in environment
        if key.startswith(_PREFIX) and key not in named
    )
    if translation is None:
        return Settings(**values, warnings=warnings)
    warnings += translation.warnings
    if "model" not in values:
        warnings += (f"{config} names no weights that can be loaded: serving the embedded default (see --model)",)
    # A flag that asks for more than the model has stays a mistake.
    can_clip = flags.get("max_model_len") is None
    return Settings(**values, compat=replace(translation.compat, can_clip_max_model_len=can_clip), warnings=warnings)


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of a sentence about a name that is not known; a prefix that all have makes none of them closer."""
    close = difflib.get_close_matches(name.removeprefix(prefix), [each.removeprefix(prefix) for each in known], n=1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def _merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win; one of two options that exclude each other removes the other given further down."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name in layer:
            if _EXCLUSIVE.get(name) not in layer:
                merged.pop(_EXCLUSIVE.get(name, ""), None)
        merged.update(layer)
    return merged


def _parse(given: Mapping[str, object], shown: Callable[[str], str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = str(key).replace("-", "_")
        if name not in _BY_NAME:
            raise InvalidConfig(f"{shown(str(key))}: unknown option{did_you_mean(name, _BY_NAME)}")
        if value is None:
            continue
        try:
            values[name] = _BY_NAME[name].parse(value)
        except ValueError as error:
            raise InvalidConfig(f"{shown(name)} {error}, got {value!r}") from error
    return values


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidConfig(f"{path}: must hold a map of option names to values")
    return document
