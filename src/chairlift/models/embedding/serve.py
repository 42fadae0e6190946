"""Settings for a model that makes vectors or scores: those of text that mean nothing for it, and other defaults."""

from dataclasses import replace

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig

_FIRST_COME, _IN_TURN = "fcfs", "in-turn"
_BY_PREFIX, _BY_LOAD = "prefix", "least-loaded"


def for_embedding(settings: Settings) -> Settings:
    if settings.roles is not None:
        raise InvalidConfig("roles: a model that makes vectors or scores has no decodes; leave --roles out")
    if settings.has_adapters:
        raise InvalidConfig(
            "lora: adapters are for models that make text; leave --lora, --lora-dir and enable_lora out"
        )
    return replace(
        settings,
        prefix_cache=False,  # every position of an input sees the whole of it
        move_kv="off",
        preemption="recompute",
        host_memory=None,
        policy=_IN_TURN if settings.policy == _FIRST_COME else settings.policy,
        router=_BY_LOAD if settings.router == _BY_PREFIX else settings.router,
    )
