"""vLLM's names for our metrics, so that its dashboards work.

Always: made from our own series at a scrape that asks for them. Buckets are vLLM's, which are among ours.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

from chairlift.telemetry.metrics import series

# By vLLM's name: kind, help, and our series that are added together.
_SUMS = {
    "num_requests_running": ("gauge", "Requests in a batch.", "requests_running"),
    "num_requests_waiting": (
        "gauge", "Requests that wait, preempted ones too.", "requests_waiting", "requests_preempted",
    ),
    "num_preemptions": ("counter", "Preemptions.", "preemptions"),
    "prompt_tokens": ("counter", "Prompt tokens.", "prompt_tokens"),
    "prompt_tokens_cached": ("counter", "Cached prompt tokens.", "prompt_tokens_cached"),
    "generation_tokens": ("counter", "Generated tokens.", "generated_tokens"),
    "prefix_cache_queries": ("counter", "Tokens: prefix cache queries.", "prompt_tokens"),
    "prefix_cache_hits": ("counter", "Tokens: prefix cache hits.", "prompt_tokens_cached"),
    "gpu_prefix_cache_queries": ("counter", "Tokens: prefix cache queries.", "prompt_tokens"),
    "gpu_prefix_cache_hits": ("counter", "Tokens: prefix cache hits.", "prompt_tokens_cached"),
}  # fmt: skip
_FIRST, _BETWEEN, _REQUEST = series.VLLM_FIRST_TOKEN, series.VLLM_BETWEEN_TOKENS, series.VLLM_REQUEST
# By vLLM's name: our histogram, vLLM's bounds, help.
_HISTOGRAMS = {
    "time_to_first_token_seconds": ("time_to_first_token_seconds", _FIRST, "Time to first token."),
    "inter_token_latency_seconds": ("inter_token_seconds", _BETWEEN, "Time between tokens."),
    "time_per_output_token_seconds": ("inter_token_seconds", _BETWEEN, "Time between tokens."),
    "request_time_per_output_token_seconds": (
        "time_per_output_token_seconds", _BETWEEN, "Time per output token of a request.",
    ),
    "e2e_request_latency_seconds": ("request_duration_seconds", _REQUEST, "Latency of a request."),
    "request_queue_time_seconds": ("queue_seconds", _REQUEST, "Time in the queue."),
    "request_prefill_time_seconds": ("prefill_seconds", _REQUEST, "Time of the prompt."),
    "request_inference_time_seconds": ("inference_seconds", _REQUEST, "Time from the first step on."),
    "request_decode_time_seconds": ("decode_seconds", _REQUEST, "Time after the first token."),
    "iteration_tokens_total": ("step_tokens", series.VLLM_STEP_TOKENS, "Tokens of a step."),
    "request_prompt_tokens": ("request_prompt_tokens", series.TOKENS, "Prompt tokens of a request."),
    "request_generation_tokens": ("request_generated_tokens", series.TOKENS, "Generated tokens of a request."),
    "request_max_num_generation_tokens": ("request_generated_tokens", series.TOKENS, "Generated tokens of a request."),
    "request_params_n": ("request_samples", series.SAMPLES[:5], "Answers that a request asked for."),
    "request_params_max_tokens": ("request_max_tokens", series.TOKENS, "Longest answer that a request allowed."),
}  # fmt: skip
_WAITING = ("requests_waiting", "requests_preempted")
_CACHE = ("kv_capacity_blocks", "kv_block_size_tokens")
_USAGE = ("kv_cache_usage_perc", "gpu_cache_usage_perc")


def sources() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each of vLLM's series with its kind and those of ours that it is made of, less `chairlift_` and `_total`."""
    for name, (kind, _, *parts) in _SUMS.items():
        yield f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}", kind, tuple(parts)
    for name in _USAGE:
        yield f"vllm:{name}", "gauge", ("kv_held_ratio",)
    yield "vllm:num_requests_waiting_by_reason", "gauge", _WAITING
    yield "vllm:cache_config_info", "gauge", _CACHE
    yield "vllm:request_success_total", "counter", ("requests",)
    for name, (part, *_) in _HISTOGRAMS.items():
        yield f"vllm:{name}", "histogram", (part,)


def as_vllm(metrics: Iterable[Metric], model: str) -> Iterator[Metric]:
    """vLLM's series from ours."""
    ours = {metric.name.removeprefix("chairlift_"): metric for metric in metrics}
    labels = {"model_name": model, "engine": "0"}
    for name, (kind, help, *parts) in _SUMS.items():
        if all(part in ours for part in parts):
            value = sum(sample.value for part in parts for sample in ours[part].samples)
            yield _metric(name, kind, help, labels, value)
    yield from _usage(ours, labels)
    yield from _waiting(ours, labels)
    yield from _cache(ours, labels)
    yield _successes(ours, labels)
    for name, (part, bounds, help) in _HISTOGRAMS.items():
        if part in ours:
            yield _histogram(ours[part], name, bounds, help, labels)


def _metric(name: str, kind: str, help: str, labels: dict[str, str], value: float) -> Metric:
    metric = Metric(f"vllm:{name}", help, kind)
    metric.add_sample(f"vllm:{name}_total" if kind == "counter" else f"vllm:{name}", labels, value)
    return metric


def _usage(ours: Mapping[str, Metric], labels: dict[str, str]) -> Iterator[Metric]:
    if "kv_held_ratio" in ours:
        [sample] = ours["kv_held_ratio"].samples
        for name in _USAGE:
            yield _metric(name, "gauge", "KV cache in use; 1 is all of it.", labels, sample.value)


def _waiting(ours: Mapping[str, Metric], labels: dict[str, str]) -> Iterator[Metric]:
    if all(part in ours for part in _WAITING):
        waiting = sum(sample.value for part in _WAITING for sample in ours[part].samples)
        metric = Metric("vllm:num_requests_waiting_by_reason", "Requests that wait, by why.", "gauge")
        for reason, value in (("capacity", waiting), ("deferred", 0.0)):
            metric.add_sample(metric.name, labels | {"reason": reason}, value)
        yield metric


def _cache(ours: Mapping[str, Metric], labels: dict[str, str]) -> Iterator[Metric]:
    if all(part in ours for part in _CACHE):
        blocks, size = (int(sum(sample.value for sample in ours[part].samples)) for part in _CACHE)
        told = {"num_gpu_blocks": blocks, "block_size": size, "kv_cache_size_tokens": blocks * size}
        about = labels | {name: str(value) for name, value in told.items()}
        yield _metric("cache_config_info", "gauge", "What the KV cache is; always 1.", about, 1)


def _successes(ours: Mapping[str, Metric], labels: dict[str, str]) -> Metric:
    metric = Metric("vllm:request_success", "Requests that ended, by why.", "counter")
    reasons = dict.fromkeys(("stop", "length", "abort", "error"), 0.0)
    for sample in ours["requests"].samples if "requests" in ours else ():
        outcome, reason = sample.labels["outcome"], sample.labels["reason"]
        name = {"aborted": "abort", "failed": "error"}.get(outcome, reason)
        if outcome != "refused" and name in reasons:
            reasons[name] += sample.value
    for reason, value in reasons.items():
        metric.add_sample("vllm:request_success_total", {**labels, "finished_reason": reason}, value)
    return metric


def _histogram(ours: Metric, name: str, bounds: tuple[float, ...], help: str, labels: dict[str, str]) -> Metric:
    metric = Metric(f"vllm:{name}", help, "histogram")
    wanted = {*bounds, float("inf")}
    for sample in ours.samples:
        bound = sample.labels.get("le")
        if bound is None or float(bound) in wanted:
            metric.add_sample(
                metric.name + sample.name.removeprefix(ours.name), {**labels, **sample.labels}, sample.value
            )
    return metric
