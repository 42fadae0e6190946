"""The server as the page shows it: version, model, rules and settings in force."""

import time
from dataclasses import fields
from typing import Any

import msgspec

from chairlift.config.options.rules import RULE_KINDS, summary
from chairlift.config.redacted import redacted
from chairlift.config.settings import Settings
from chairlift.core.limits import Limits
from chairlift.server.context import ServerContext

_HIDDEN = ("compat", "warnings")


def about(context: ServerContext) -> bytes:
    engine, settings = context.client.info, context.settings
    limits = None if engine is None else engine.limits
    return msgspec.json.encode(
        {
            "version": context.version,
            "models": context.model_names,
            "up_s": max(0.0, time.time() - context.created),
            "has_chat": context.tokenizer.chat_template is not None,
            **{name: getattr(engine, name, None) for name in ("device", "dtype")},
            "limits": limits,
            "rules": [
                _rule(option, getattr(settings, option))
                for option in RULE_KINDS
                if option != "router" or settings.has_others
            ]
            + [{"option": "preemption", "value": settings.preemption, "purpose": "what becomes of a victim's blocks"}],
            "settings": _settings(settings, limits),
        }
    )


def replicas(context: ServerContext) -> bytes | None:
    """The load of each replica, where there are several."""
    if not context.settings.has_others:
        return None
    return msgspec.json.encode(context.client.loads())


def _rule(option: str, value: str) -> dict[str, str]:
    return {"option": option, "value": value, "summary": summary(option, value), "purpose": RULE_KINDS[option].purpose}


def _settings(settings: Settings, limits: Limits | None) -> list[tuple[str, str, bool]]:
    """Name, value, and whether it is the default; for defaults chosen at start, the chosen value."""
    plain = Settings()
    rows = []
    for field in fields(Settings):
        if field.name in _HIDDEN:
            continue
        value = getattr(settings, field.name)
        is_default = value == getattr(plain, field.name)
        if value is None:
            value = getattr(limits, field.name, None)
        rows.append((field.name, _shown(field.name, value), is_default))
    return rows


def _shown(name: str, value: Any) -> str:
    if "key" in name:  # nothing of a secret
        return "set" if value else "not set"
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return redacted(value) if isinstance(value, str) and "://" in value else str(value)
