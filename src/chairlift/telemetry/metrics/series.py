"""The table of our own series on `/metrics`; docs/metrics.md describes them.

Always: names follow Prometheus' conventions (`_total` for counters; `_seconds`, `_tokens`, `_bytes` as units), and a
label has few values, whatever clients send. Every bound of vLLM's histograms is one of ours too, so that theirs follow
from ours. Ours are finer, most of all below vLLM's first ones (10 ms between tokens, 300 ms for a request), where small
models live.
"""

from typing import Literal, NamedTuple

VLLM_REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_FINE = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2)

VLLM_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
VLLM_BETWEEN_TOKENS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
VLLM_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)

FIRST_TOKEN = tuple(sorted({*VLLM_FIRST_TOKEN, *_FINE, 0.3, 0.4, 0.6, 1.5, 2, 3, 4, 15, 30, 60, 320, 1280}))
BETWEEN_TOKENS = tuple(
    sorted(
        {*VLLM_BETWEEN_TOKENS, 0.0005, *_FINE[:11], 0.004, 0.006, 0.007, 0.0085, 0.0125, 0.0175, 0.0225, 0.035, 0.06}
    )
)
REQUEST = tuple(sorted({*VLLM_REQUEST, *_FINE, 0.25, 0.4, 0.6, 3, 4, 7.5}))
STEP_TOKENS = tuple(sorted({*VLLM_STEP_TOKENS, 2, 4, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 12288, 32768, 65536}))
# From 10 microseconds, for planning a small step, to a minute, for a long prompt on a CPU.
_DECADES = (round(base * 10.0**exponent, 7) for exponent in range(-5, 1) for base in (1, 1.5, 2, 3, 5, 7))
STEP = (*_DECADES, 10.0, 20.0, 60.0)
# 1, 2, 5, 10, ... up to a million: longer than any context.
SAMPLES = (1, 2, 5, 10, 20, 50, 100)
TOKENS = (*(base * 10**exponent for exponent in range(6) for base in (1, 2, 5)), 10**6)


MetricKind = Literal["counter", "gauge", "histogram"]


class Series(NamedTuple):
    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


def _histogram(name: str, bounds: tuple[float, ...], help: str, *labels: str) -> Series:
    return Series(name, "histogram", help, labels, bounds)


_FRONT_END = (
    Series(
        "chairlift_requests_total", "counter",
        "Requests for text that ended, by how they ended; one of several prompts or samples counts once.",
        ("route", "outcome", "reason"),
    ),
    Series("chairlift_connections_refused_total", "counter", "Connections ended below the routes.", ("reason",)),
    Series("chairlift_http_responses_total", "counter", "Responses of every route by status.", ("route", "code")),
    _histogram(
        "chairlift_time_to_first_token_seconds", FIRST_TOKEN,
        "From a request's arrival to its first token, as the front end sees them.",
    ),
    _histogram(
        "chairlift_time_per_output_token_seconds", BETWEEN_TOKENS,
        "Of a finished request: the time after its first token over the tokens made in it.",
    ),
    _histogram(
        "chairlift_request_duration_seconds", REQUEST, "From a finished request's arrival to its last token.",
    ),
    _histogram("chairlift_request_prompt_tokens", TOKENS, "Prompt tokens of a finished request."),
    _histogram("chairlift_request_generated_tokens", TOKENS, "Tokens made for a finished request."),
    _histogram("chairlift_request_samples", SAMPLES, "Answers that a finished request asked for."),
    _histogram("chairlift_request_max_tokens", TOKENS, "Longest answer that a finished request allowed."),
    Series(
        "chairlift_requests_moved_total", "counter", "Requests that went on in another replica, and why.", ("why", "kv")
    ),
    Series(
        "chairlift_adapter_requests_total", "counter",
        "Finished requests of each adapter; of the hundred first, all more are other.", ("adapter",),
    ),
    Series(
        "chairlift_adapter_tokens_total", "counter", "Tokens of these: of prompts, and generated.", ("adapter", "kind")
    ),
    Series(
        "chairlift_adapter_requests_refused_total", "counter", "Requests of each adapter that got 429.", ("adapter",)
    ),
    Series("chairlift_trace_spans_total", "counter", "Spans for OpenTelemetry, sent or dropped.", ("outcome",)),
)  # fmt: skip
_ENGINE = (
    Series("chairlift_requests_running", "gauge", "Requests that share the steps now."),
    Series("chairlift_requests_waiting", "gauge", "Requests that wait for their first step."),
    Series("chairlift_requests_preempted", "gauge", "Requests that had to give their blocks up and wait to go on."),
    Series("chairlift_preemptions_total", "counter", "Times that a request had to give its blocks up.", ("kind",)),
    Series("chairlift_prompt_tokens_total", "counter", "Prompt tokens of requests that have made a token."),
    Series("chairlift_prompt_tokens_cached_total", "counter", "Prompt tokens that were found in the prefix cache."),
    Series(
        "chairlift_prompt_tokens_missed_total", "counter",
        "Prompt tokens that were computed though their blocks were cached: the state or window after them was not.",
    ),
    Series("chairlift_generated_tokens_total", "counter", "Tokens made."),
    Series("chairlift_kv_blocks", "gauge", "KV blocks by state; all but swapped lie in the cache.", ("state",)),
    Series("chairlift_kv_capacity_blocks", "gauge", "KV blocks that the cache has: free, cached and held together."),
    Series("chairlift_kv_held_ratio", "gauge", "Share of the cache's KV blocks that are held; 1 is all of it."),
    Series("chairlift_kv_block_size_tokens", "gauge", "Tokens whose keys and values fit a block."),
    _histogram(
        "chairlift_step_seconds", STEP, "Time the engine spends on a part of a step, waiting included.", "part",
    ),
    Series("chairlift_step_busy_seconds_total", "counter", "Time with steps in flight, overlaps counted once."),
    Series(
        "chairlift_steps_late_total", "counter", "Steps that ended before the next was submitted: the device waited."
    ),
    _histogram("chairlift_step_tokens", STEP_TOKENS, "Tokens computed in a step."),
    _histogram(
        "chairlift_inter_token_seconds", BETWEEN_TOKENS, "Between two tokens of a request, for every token.",
    ),
    _histogram(
        "chairlift_queue_seconds", REQUEST,
        "From a request's arrival at the engine to its first step, told with its first token.",
    ),
    _histogram("chairlift_prefill_seconds", REQUEST, "From a request's first step to its first token."),
    _histogram("chairlift_decode_seconds", REQUEST, "From a request's first token to its last."),
    _histogram("chairlift_inference_seconds", REQUEST, "From a request's first step to its last token."),
)  # fmt: skip
_REPLICA = (
    Series(
        "chairlift_replica_requests", "gauge", "Requests of one replica that run, or wait for a step.",
        ("replica", "state"),
    ),
    Series("chairlift_replica_queued_tokens", "gauge", "Work before a new request's own, in tokens.", ("replica",)),
    Series("chairlift_replica_kv_held_ratio", "gauge", "Share of its KV blocks that are held.", ("replica",)),
    Series("chairlift_replica_draining", "gauge", "1 while it is to be left by its requests, else 0.", ("replica",)),
    Series("chairlift_replica_prompt_tokens_total", "counter", "Prompt tokens of its requests.", ("replica",)),
    Series("chairlift_replica_prompt_tokens_cached_total", "counter", "Prompt tokens that were cached.", ("replica",)),
    Series("chairlift_replica_generated_tokens_total", "counter", "Tokens it made.", ("replica",)),
    Series(
        "chairlift_replica_requests_moved_total", "counter", "Requests that came to it from another engine.",
        ("replica",),
    ),
    Series(
        "chairlift_kv_fetches_total", "counter", "Requests whose keys and values were to come from another engine.",
        ("outcome",),
    ),
    Series("chairlift_drains_total", "counter", "Times that a replica was asked to be left by its requests."),
)  # fmt: skip
# Only of a server with `--cluster`.
_CLUSTER = (
    Series("chairlift_members", "gauge", "Engines on other machines that are listed."),
    Series("chairlift_joins_refused_total", "counter", "Nodes that were refused, and why.", ("reason",)),
    Series(
        "chairlift_connections_turned_away_total", "counter",
        "Connections to the ports of a cluster that had no key, or another, or broke off.",
    ),
)  # fmt: skip
# Only of an NVIDIA GPU, and of what its driver tells.
_DEVICE = (
    Series(
        "chairlift_device_busy_ratio", "gauge", "Share of the last moment in which the GPU computed; 1 is all of it."
    ),
    Series("chairlift_device_memory_used_bytes", "gauge", "GPU memory in use, by all processes."),
    Series("chairlift_device_memory_capacity_bytes", "gauge", "GPU memory that there is."),
    Series("chairlift_device_power_watts", "gauge", "Power that the GPU draws."),
    Series("chairlift_device_power_limit_watts", "gauge", "Power that the GPU may draw."),
)
_PARENT = (
    Series("chairlift_engine_restarts_total", "counter", "Times that the engine was started again."),
    Series("chairlift_front_end_restarts_total", "counter", "Times that a front end was started again."),
    Series("chairlift_log_lines_dropped_total", "counter", "Log lines that were not written: the log was not read."),
    Series("chairlift_build_info", "gauge", "Always 1; says what runs.", ("version", "model", "python")),
)
SERIES = {series.name: series for series in (*_FRONT_END, *_ENGINE, *_REPLICA, *_CLUSTER, *_DEVICE, *_PARENT)}
