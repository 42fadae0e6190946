"""Presets: named sets of option values, each of which any other source of the option overrides.

`llm-serving` schedules as that engine did: whole prompts, one a step, in steps without decodes; a fixed number of
slots; the shortest running request preempted, to the head of the queue, with nothing admitted in that step; no prefix
cache.
"""

from collections.abc import Mapping

NONE = "none"
PRESETS: Mapping[str, Mapping[str, object]] = {
    NONE: {},
    "llm-serving": {
        "max_running": 128,
        "max_step_tokens": 4096,
        "max_step_prompts": 1,
        "prefix_cache": "off",
        "policy": "fcfs:victim=shortest",
        "prefill": "prefill-first:after_preempt=wait",
        "requeue": "lifo",
    },
}


def contents() -> str:
    """What each preset sets, for the help."""
    return "; ".join(f"{name}: {_shown(values)}" for name, values in PRESETS.items() if values)


def _shown(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name.replace('_', '-')} {value}" for name, value in values.items())
