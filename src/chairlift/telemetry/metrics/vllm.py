"""vLLM's names for what we count, so that dashboards made for it work.

Always: made from our own series when somebody asks, at no cost before. Buckets are vLLM's, which are among ours.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.metrics_core import Metric

from chairlift.telemetry.metrics import buckets


class _Plain(NamedTuple):
    name: str
    kind: str
    ours: tuple[str, ...]  # added together
    help: str


class _Cut(NamedTuple):
    name: str
    ours: str
    bounds: tuple[float, ...]
    help: str


_PLAIN = (
    _Plain("num_requests_running", "gauge", ("chairlift_requests_running",), "Requests in a batch."),
    _Plain(
        "num_requests_waiting",
        "gauge",
        ("chairlift_requests_waiting", "chairlift_requests_preempted"),
        "Requests that wait, preempted ones too.",
    ),
    _Plain("num_preemptions", "counter", ("chairlift_preemptions_total",), "Preemptions."),
    _Plain("prompt_tokens", "counter", ("chairlift_prompt_tokens_total",), "Prompt tokens."),
    _Plain("prompt_tokens_cached", "counter", ("chairlift_prompt_tokens_cached_total",), "Cached prompt tokens."),
    _Plain("generation_tokens", "counter", ("chairlift_generated_tokens_total",), "Generated tokens."),
    *(
        _Plain(f"{prefix}prefix_cache_{what}", "counter", (ours,), f"Tokens: prefix cache {what}.")
        for prefix in ("", "gpu_")
        for what, ours in (
            ("queries", "chairlift_prompt_tokens_total"),
            ("hits", "chairlift_prompt_tokens_cached_total"),
        )
    ),
)
_CUT = (
    _Cut(
        "time_to_first_token_seconds",
        "chairlift_time_to_first_token_seconds",
        buckets.VLLM_FIRST_TOKEN,
        "Time to first token.",
    ),
    *(
        _Cut(name, "chairlift_inter_token_seconds", buckets.VLLM_BETWEEN_TOKENS, "Time between tokens.")
        for name in ("inter_token_latency_seconds", "time_per_output_token_seconds")
    ),
    _Cut(
        "request_time_per_output_token_seconds",
        "chairlift_time_per_output_token_seconds",
        buckets.VLLM_BETWEEN_TOKENS,
        "Time per output token of a request.",
    ),
    *(
        _Cut(name, ours, buckets.VLLM_REQUEST, help)
        for name, ours, help in (
            ("e2e_request_latency_seconds", "chairlift_request_duration_seconds", "Latency of a request."),
            ("request_queue_time_seconds", "chairlift_queue_seconds", "Time in the queue."),
            ("request_prefill_time_seconds", "chairlift_prefill_seconds", "Time of the prompt."),
            ("request_decode_time_seconds", "chairlift_decode_seconds", "Time after the first token."),
        )
    ),
    _Cut("iteration_tokens_total", "chairlift_step_tokens", buckets.VLLM_STEP_TOKENS, "Tokens of a step."),
    _Cut("request_prompt_tokens", "chairlift_request_prompt_tokens", buckets.TOKENS, "Prompt tokens of a request."),
    *(
        _Cut(name, "chairlift_request_generated_tokens", buckets.TOKENS, "Generated tokens of a request.")
        for name in ("request_generation_tokens", "request_max_num_generation_tokens")
    ),
)


def as_vllm(ours: Iterable[Metric], model: str) -> Iterator[Metric]:
    """vLLM's series from ours."""
    found = {metric.name: metric for metric in ours}
    labels = {"model_name": model, "engine": "0"}
    for plain in _PLAIN:
        values = [_sum(found, name) for name in plain.ours]
        if None not in values:
            yield _metric(plain.name, plain.kind, plain.help, labels, sum(filter(None, values)))
    yield from _usage(found, labels)
    yield _successes(found, labels)
    for cut in _CUT:
        histogram = found.get(cut.ours)
        if histogram is not None:
            yield _cut(histogram, cut, labels)


def _sum(found: Mapping[str, Metric], name: str) -> float | None:
    """Over all labels; None when nobody has it."""
    metric = found.get(name.removesuffix("_total"))
    return None if metric is None else sum(sample.value for sample in metric.samples)


def _metric(name: str, kind: str, help: str, labels: dict[str, str], value: float) -> Metric:
    metric = Metric(f"vllm:{name}", help, kind)
    metric.add_sample(f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}", labels, value)
    return metric


def _usage(found: Mapping[str, Metric], labels: dict[str, str]) -> Iterator[Metric]:
    capacity = _sum(found, "chairlift_kv_capacity_blocks")
    if capacity:
        blocks = found["chairlift_kv_blocks"].samples
        held = sum(sample.value for sample in blocks if sample.labels["state"] == "held")
        for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
            yield _metric(name, "gauge", "KV cache in use; 1 is all of it.", labels, held / capacity)


def _successes(found: Mapping[str, Metric], labels: dict[str, str]) -> Metric:
    metric = Metric("vllm:request_success", "Requests that ended, by why.", "counter")
    reasons = dict.fromkeys(("stop", "length", "abort", "error"), 0.0)
    ended = found.get("chairlift_requests")
    for sample in ended.samples if ended is not None else ():
        outcome, reason = sample.labels["outcome"], sample.labels["reason"]
        name = {"aborted": "abort", "failed": "error"}.get(outcome, reason)
        if outcome != "refused" and name in reasons:
            reasons[name] += sample.value
    for reason, value in reasons.items():
        metric.add_sample("vllm:request_success_total", {**labels, "finished_reason": reason}, value)
    return metric


def _cut(ours: Metric, cut: _Cut, labels: dict[str, str]) -> Metric:
    metric = Metric(f"vllm:{cut.name}", cut.help, "histogram")
    wanted = {*cut.bounds, float("inf")}
    for sample in ours.samples:
        bound = sample.labels.get("le")
        if bound is None or float(bound) in wanted:
            name = metric.name + sample.name.removeprefix(ours.name)
            metric.add_sample(name, {**labels, **sample.labels}, sample.value)
    return metric
