"""The server as the page shows it: version, model, rules and settings in force."""

import time
from dataclasses import fields
from typing import Any, NamedTuple

import msgspec

from chairlift.config.options.rules import RULE_KINDS, summary
from chairlift.config.options.values import num_bytes, redacted
from chairlift.config.settings import Settings
from chairlift.live.shared_memory.counts import Count
from chairlift.server.context import ServerContext

_ENDS = (Count.ANSWERED, Count.FAILED, Count.ABORTED, Count.OVERLOADED, Count.REJECTED)


def about(context: ServerContext) -> bytes:
    engine, settings = context.client.info, context.settings
    limits = None if engine is None else engine.limits
    return msgspec.json.encode(
        {
            "version": context.version,
            "models": context.model_names,
            "up_s": max(0.0, time.time() - context.created),
            "makes_text": context.texts is None,
            "has_chat": context.tokenizer.chat_template is not None,
            **{name: getattr(engine, name, None) for name in ("device", "dtype")},
            "limits": limits,
            "rules": [
                _rule(option, getattr(settings, option))
                for option in RULE_KINDS
                if option != "router" or settings.has_others
            ]
            + [{"option": "preemption", "value": settings.preemption, "purpose": "what becomes of a victim's blocks"}],
            "settings": in_force(context),
        }
    )


def replicas(context: ServerContext) -> bytes | None:
    """The load of each replica, where there are several."""
    if not context.settings.has_others:
        return None
    return msgspec.json.encode(context.client.replicas.loads())


def totals(context: ServerContext) -> bytes:
    """How requests ended, at any front end."""
    return msgspec.json.encode({count.name.lower(): context.load.counts.total(count) for count in _ENDS})


def _rule(option: str, value: str) -> dict[str, str]:
    return {"option": option, "value": value, "summary": summary(option, value), "purpose": RULE_KINDS[option].purpose}


_UNBOUNDED = ("max_request_seconds", "drain_timeout")
_OPEN = (None, "auto", ())  # values that leave it open; for threads also 0


class SettingRow(NamedTuple):
    """The settings in force: what was given, or what was chosen where a setting leaves it to the model or the machine.

    Always: nothing of a secret is shown, and `auto` only while there is no engine.
    """

    name: str
    value: str
    is_default: bool
    group: str
    help: str


def in_force(context: ServerContext) -> list[SettingRow]:
    settings, plain = context.settings, Settings()
    chosen, limits = _chosen(context), context.client.info and context.client.info.limits
    rows = []
    for field in fields(Settings):
        if not field.metadata:  # no option
            continue
        given = getattr(settings, field.name)
        is_open = given in _OPEN or (field.name == "threads" and not given)
        value = chosen.get(field.name, given) if is_open else given
        value = getattr(limits, field.name, value)  # may be less than what was asked for
        is_default = given == getattr(plain, field.name)
        shown = _shown(field.name, value, field.metadata["parse"] is num_bytes)
        rows.append(SettingRow(field.name, shown, is_default, field.metadata["group"], field.metadata["help"]))
    return rows


def _chosen(context: ServerContext) -> dict[str, str]:
    settings, config, engine = context.settings, context.model_config, context.client.info
    chosen = {} if engine is None else dict(engine.chosen)
    device = chosen.get("device")
    return chosen | {
        "model": context.model_names[0],
        "served_model_name": ", ".join(context.model_names),
        "tokenizer": "the model's",
        "tool_format": "none" if context.format is None else context.format.name,
        "task": "generate" if config.embedding is None else config.embedding.task,
        "model_impl": "chairlift" if config.fallback is None else "transformers",
        "load_format": "the model's files",
        "collectives": "none" if settings.tensor_parallel == 1 else "gloo" if device == "cpu" else "nccl",
        "kv_memory": "by num_blocks",
        "frontends": str(context.load.counts.num_rows),
        "max_connections_per_address": str(settings.connections_per_address),
        **dict.fromkeys(_UNBOUNDED, "no limit"),
    }


def _shown(name: str, value: Any, is_size: bool) -> str:
    if "key" in name:
        return "set" if value else "not set"
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "lora":
        return ", ".join(f"{adapter}={path}" for adapter, path in value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if is_size and isinstance(value, int):
        return _size(value)
    return redacted(value) if isinstance(value, str) and "://" in value else str(value)


def _size(value: int) -> str:
    """As the option takes it."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)
