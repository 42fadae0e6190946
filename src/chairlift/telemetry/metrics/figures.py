"""An engine's figures as one value: how it is now, and what it has counted since it began.

An engine tells it each second where there are several: front ends show it, and those of other machines are added to
`/metrics` by the members' list. `GAUGES` and `COUNTERS` name the series that a field is part of, `HISTOGRAMS` those of
its histograms, in their order.
"""

import msgspec

Name = tuple[str, ...]  # of a series, and its labels


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """A histogram since the engine began; the last bucket is above all bounds."""

    buckets: list[int]
    total: float  # of the values


class Figures(msgspec.Struct, frozen=True):
    born: int = 0  # a random number, another one for each engine: it counts from 0
    running: int = 0
    waiting: int = 0
    preempted: int = 0
    queued_tokens: int = 0  # work before a new request's own
    blank: int = 0  # KV blocks that hold nothing
    cached: int = 0  # free ones that still hold a prefix
    held: int = 0
    swapped: int = 0  # in host memory
    capacity: int = 0  # blocks of the cache
    block_size: int = 0  # tokens
    is_draining: bool = False
    # From here on counted since it was born.
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of these, found in the prefix cache
    missed_tokens: int = 0  # their blocks were found in it, and not the state or windows after them
    generated_tokens: int = 0
    recomputed: int = 0  # preemptions, whose blocks are computed again
    swapped_out: int = 0  # or come back
    busy_s: float = 0.0
    late: int = 0  # steps
    drains: int = 0
    moved_in: int = 0  # requests that came from another engine
    turned_away: int = 0  # connections without the cluster key
    fetched: int = 0  # requests whose keys and values came along from another engine
    unfetched: int = 0  # or should have
    histograms: list[Counts] = []  # none: left out

    @property
    def held_ratio(self) -> float:
        return self.held / self.capacity if self.capacity else 0.0


GAUGES: dict[str, Name] = {
    "running": ("chairlift_requests_running",),
    "waiting": ("chairlift_requests_waiting",),
    "preempted": ("chairlift_requests_preempted",),
    "blank": ("chairlift_kv_blocks", "free"),
    "cached": ("chairlift_kv_blocks", "cached"),
    "held": ("chairlift_kv_blocks", "held"),
    "swapped": ("chairlift_kv_blocks", "swapped"),
    "capacity": ("chairlift_kv_capacity_blocks",),
}
COUNTERS: dict[str, Name] = {
    "prompt_tokens": ("chairlift_prompt_tokens_total",),
    "cached_tokens": ("chairlift_prompt_tokens_cached_total",),
    "missed_tokens": ("chairlift_prompt_tokens_missed_total",),
    "generated_tokens": ("chairlift_generated_tokens_total",),
    "recomputed": ("chairlift_preemptions_total", "recompute"),
    "swapped_out": ("chairlift_preemptions_total", "swap"),
    "busy_s": ("chairlift_step_busy_seconds_total",),
    "late": ("chairlift_steps_late_total",),
    "drains": ("chairlift_drains_total",),
    "turned_away": ("chairlift_connections_turned_away_total",),
    "fetched": ("chairlift_kv_fetches_total", "whole"),
    "unfetched": ("chairlift_kv_fetches_total", "failed"),
}
STEP_PARTS = ("schedule", "prepare", "run", "commit")
HISTOGRAMS: tuple[Name, ...] = (
    *(("chairlift_step_seconds", part) for part in STEP_PARTS),
    ("chairlift_step_tokens",),
    ("chairlift_inter_token_seconds",),
    ("chairlift_queue_seconds",),
    ("chairlift_prefill_seconds",),
    ("chairlift_decode_seconds",),
    ("chairlift_inference_seconds",),
)
