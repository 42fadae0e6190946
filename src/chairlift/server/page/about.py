"""The server as the page shows it: version, model, rules and settings in force."""

import time

import msgspec

from chairlift.config.options.rules import RULE_KINDS, summary
from chairlift.live.shared_memory.counts import Count
from chairlift.server.context import ServerContext
from chairlift.server.page.in_force import in_force

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
    return msgspec.json.encode(context.client.loads())


def totals(context: ServerContext) -> bytes:
    """How requests ended, at any front end."""
    return msgspec.json.encode({count.name.lower(): context.load.counts.total(count) for count in _ENDS})


def _rule(option: str, value: str) -> dict[str, str]:
    return {"option": option, "value": value, "summary": summary(option, value), "purpose": RULE_KINDS[option].purpose}
