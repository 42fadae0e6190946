from collections.abc import Iterator
from pathlib import Path

import pytest

from chairlift.telemetry.metrics import series
from chairlift.telemetry.metrics.parent import ParentMetrics
from chairlift.telemetry.metrics.store import Store, forget
from fakes.scrapes import Scrape, own_values

TOKENS = "chairlift_generated_tokens_total"
GAPS = "chairlift_inter_token_seconds"


@pytest.fixture(autouse=True)
def _own_values() -> Iterator[None]:
    with own_values():
        yield


def test_a_process_that_takes_a_role_over_goes_on_with_its_counts(tmp_path: Path) -> None:
    for _ in range(3):
        store = Store(tmp_path, "engine")
        store.counter(TOKENS).add(5)
        store.histogram(GAPS).add(0.02, 2)
        store.flush()
        forget(tmp_path, "engine")
    scrape = Scrape.of(tmp_path)
    assert scrape.value(TOKENS) == 15
    assert scrape.value(f"{GAPS}_count") == 6
    assert len(list(tmp_path.glob("counter_*.db"))) == 1


def test_the_counts_of_all_processes_are_added_up(tmp_path: Path) -> None:
    for index in range(2):
        store = Store(tmp_path, f"front-end-{index}")
        store.counter("chairlift_requests_total", "/v1/completions", "finished", "stop").add(index + 1)
        store.flush()
    assert Scrape.of(tmp_path).value("chairlift_requests_total", reason="stop") == 3


def test_the_gauges_of_a_process_that_is_gone_vanish_and_its_counts_stay(tmp_path: Path) -> None:
    store = Store(tmp_path, "engine")
    store.gauge("chairlift_requests_running").set(7)
    store.counter(TOKENS).add(5)
    store.flush()
    assert Scrape.of(tmp_path).value("chairlift_requests_running") == 7
    forget(tmp_path, "engine")
    scrape = Scrape.of(tmp_path)
    assert not scrape.has("chairlift_requests_running")
    assert scrape.value(TOKENS) == 5


def test_an_empty_file_does_no_harm(tmp_path: Path) -> None:
    Store(tmp_path, "engine").counter(TOKENS)
    (tmp_path / "counter_front-end-0.db").touch()
    assert Scrape.of(tmp_path).value(TOKENS) == 0


def test_a_tally_counts_a_value_in_every_bucket_that_is_large_enough(tmp_path: Path) -> None:
    store = Store(tmp_path, "engine")
    tally = store.histogram(GAPS)
    for value, count in ((0.01, 3), (0.011, 1), (1e9, 2)):
        tally.add(value, count)
    store.flush()
    scrape = Scrape.of(tmp_path)
    at = {bound: scrape.value(f"{GAPS}_bucket", le=bound) for bound in ("0.0085", "0.01", "0.0125", "80.0", "+Inf")}
    assert at == {"0.0085": 0, "0.01": 3, "0.0125": 4, "80.0": 4, "+Inf": 6}
    assert scrape.value(f"{GAPS}_sum") == pytest.approx(2e9 + 0.041)


def test_the_parent_counts_restarts_and_what_was_lost(tmp_path: Path) -> None:
    parent = ParentMetrics(tmp_path, "small")
    Store(tmp_path, "engine").gauge("chairlift_requests_running").set(1)
    parent.engine_starts_again(0)
    parent.front_end_starts_again(0, 3)
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_engine_restarts_total") == 1
    assert scrape.value("chairlift_front_end_restarts_total") == 1
    assert scrape.value("chairlift_requests_total", outcome="failed", reason="front_end_died") == 3
    assert scrape.value("chairlift_build_info", model="small") == 1
    assert not scrape.has("chairlift_requests_running")


def test_the_series_of_processes_are_of_all_that_have_a_role(tmp_path: Path) -> None:
    Store(tmp_path, "parent")
    one = Scrape.of(tmp_path)
    (tmp_path / "engine.pid").write_text((tmp_path / "parent.pid").read_text())
    (tmp_path / "gone.pid").write_text("999999999")
    two = Scrape.of(tmp_path)
    assert one.value("process_cpu_seconds_total") > 0
    assert two.value("process_resident_memory_bytes") > 1.9 * one.value("process_resident_memory_bytes")
    assert two.value("process_open_fds") > 1.9 * one.value("process_open_fds") - 5
    assert two.value("process_start_time_seconds") == one.value("process_start_time_seconds")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (series.VLLM_FIRST_TOKEN, series.FIRST_TOKEN),
        (series.VLLM_BETWEEN_TOKENS, series.BETWEEN_TOKENS),
        (series.VLLM_REQUEST, series.REQUEST),
        (series.VLLM_STEP_TOKENS, series.STEP_TOKENS),
    ],
)
def test_buckets_are_finer_than_vllms(theirs: tuple[float, ...], ours: tuple[float, ...]) -> None:
    assert set(theirs) < set(ours)
    assert len(ours) >= 1.5 * len(theirs)
    assert sorted(ours) == list(ours)
