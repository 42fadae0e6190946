from collections.abc import Iterator
from pathlib import Path

import pytest

from chairlift.telemetry.metrics import series
from chairlift.telemetry.metrics.series import SERIES
from chairlift.telemetry.metrics.store import Store
from chairlift.telemetry.metrics.vllm import sources
from fakes.scrapes import Scrape, own_values


@pytest.fixture
def scrape(tmp_path: Path) -> Iterator[Scrape]:
    with own_values():
        store = Store(tmp_path, "engine")
        store.counter("chairlift_prompt_tokens_total").add(100)
        store.counter("chairlift_prompt_tokens_cached_total").add(30)
        store.counter("chairlift_preemptions_total", "swap").add(2)
        store.counter("chairlift_preemptions_total", "recompute").add(3)
        for name, value in (("running", 4), ("waiting", 5), ("preempted", 1)):
            store.gauge(f"chairlift_requests_{name}").set(value)
        for state, value in (("free", 2), ("cached", 3), ("held", 5)):
            store.gauge("chairlift_kv_blocks", state).set(value)
        store.gauge("chairlift_kv_capacity_blocks").set(10)
        store.gauge("chairlift_kv_block_size_tokens").set(16)
        for route, outcome, reason, count in (
            ("/a", "finished", "stop", 1),
            ("/b", "finished", "stop", 2),
            ("/a", "finished", "length", 4),
            ("/a", "aborted", "client", 8),
            ("/a", "failed", "500", 16),
            ("/a", "refused", "429", 32),
        ):
            store.counter("chairlift_requests_total", route, outcome, reason).add(count)
        store.histogram("chairlift_inter_token_seconds").add(0.004, 7)
        store.histogram("chairlift_inter_token_seconds").add(0.03, 2)
        store.histogram("chairlift_step_tokens").add(40)
        store.flush()
        yield Scrape.of(tmp_path, "small")


def test_plain_series_have_vllms_names_and_labels(scrape: Scrape) -> None:
    expected = {
        "num_requests_running": 4,
        "num_requests_waiting": 6,
        "kv_cache_usage_perc": 0.5,
        "gpu_cache_usage_perc": 0.5,
        "prompt_tokens_total": 100,
        "num_preemptions_total": 5,
        "prefix_cache_queries_total": 100,
        "prefix_cache_hits_total": 30,
    }
    assert {name: scrape.value(f"vllm:{name}", model_name="small", engine="0") for name in expected} == expected


def test_requests_are_told_by_why_they_finished_and_refused_ones_are_none(scrape: Scrape) -> None:
    reasons = ("stop", "length", "abort", "error")
    assert [scrape.value("vllm:request_success_total", finished_reason=r) for r in reasons] == [3, 4, 8, 16]


@pytest.mark.parametrize("name", ["inter_token_latency_seconds", "time_per_output_token_seconds"])
def test_a_histogram_has_vllms_buckets_and_our_counts(scrape: Scrape, name: str) -> None:
    bounds = {float(dict(labels)["le"]) for n, labels in scrape.samples if n == f"vllm:{name}_bucket"}
    assert bounds == {*series.VLLM_BETWEEN_TOKENS, float("inf")}
    assert scrape.value(f"vllm:{name}_bucket", le="0.01") == 7
    assert scrape.value(f"vllm:{name}_bucket", le="0.05") == scrape.value(f"vllm:{name}_count") == 9
    assert scrape.value(f"vllm:{name}_sum") == pytest.approx(0.088)


def test_a_histogram_may_be_called_total(scrape: Scrape) -> None:
    assert scrape.value("vllm:iteration_tokens_total_bucket", le="64.0") == 1
    assert scrape.value("vllm:iteration_tokens_total_bucket", le="32.0") == 0


def test_what_is_not_counted_yet_is_left_out(scrape: Scrape) -> None:
    assert not scrape.has("vllm:generation_tokens_total")
    assert not scrape.has("vllm:time_to_first_token_seconds_count")


def test_the_sources_are_those_of_every_series(scrape: Scrape) -> None:
    named = {name: (kind, parts) for name, kind, parts in sources()}
    shown = {family.name: family.type for family in scrape.families.values() if family.name.startswith("vllm:")}
    assert shown.items() <= {name.removesuffix("_total"): kind for name, (kind, _) in named.items()}.items() | {
        ("vllm:iteration_tokens_total", "histogram")
    }
    ours = {name.removeprefix("chairlift_").removesuffix("_total") for name in SERIES}
    assert {part for _, parts in named.values() for part in parts} <= ours


def test_waiting_requests_and_the_cache_are_told_as_vllm_tells_them(scrape: Scrape) -> None:
    name = "vllm:num_requests_waiting_by_reason"
    assert [scrape.value(name, reason=reason) for reason in ("capacity", "deferred")] == [6, 0]
    assert scrape.value("vllm:cache_config_info", num_gpu_blocks="10", block_size="16", kv_cache_size_tokens="160") == 1
