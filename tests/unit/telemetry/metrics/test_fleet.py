"""Figures of engines on other machines on `/metrics`: added up, by number, and never going back."""

import random
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from chairlift.telemetry.metrics.figures import Counts, Figures
from chairlift.telemetry.metrics.fleet import FleetMetrics
from chairlift.telemetry.metrics.series import SERIES
from chairlift.telemetry.metrics.store import Store
from fakes.scrapes import Scrape, own_values

NUMBERS = {"a": 1, "b": 2}
A = Figures(born=7, running=2, waiting=3, preempted=1, held=5, blank=15, capacity=20, block_size=16)


@pytest.fixture(autouse=True)
def _own_values() -> Iterator[None]:
    with own_values():
        yield


def made(figures: Figures, tokens: int) -> Figures:
    return replace(figures, generated_tokens=tokens)


def test_gauges_are_sums_and_by_replica(tmp_path: Path) -> None:
    fleet = FleetMetrics(tmp_path, has_own=False)
    fleet.show({"a": A, "b": replace(A, born=8, running=5, held=20, is_draining=True)}, NUMBERS, 0)
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_requests_running") == 7
    assert scrape.value("chairlift_requests_waiting") == 6
    assert scrape.value("chairlift_requests_preempted") == 2
    assert scrape.value("chairlift_kv_held_ratio") == 25 / 40
    assert scrape.value("chairlift_kv_block_size_tokens") == 16
    assert scrape.value("chairlift_members") == 2
    assert scrape.value("chairlift_replica_requests", replica="1", state="waiting") == 4
    assert scrape.value("chairlift_replica_kv_held_ratio", replica="2") == 1
    assert scrape.value("chairlift_replica_draining", replica="2") == 1


def test_the_servers_own_engines_are_added(tmp_path: Path) -> None:
    fleet = FleetMetrics(tmp_path, has_own=True)
    fleet.show({"a": A}, NUMBERS, 0)
    own = Store(tmp_path, "engine")
    own.gauge("chairlift_requests_running").set(10)
    own.gauge("chairlift_kv_block_size_tokens").set(16)
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_requests_running") == 12
    assert scrape.value("chairlift_kv_block_size_tokens") == 16


def with_steps(figures: Figures, *steps_s: float) -> Figures:
    """With one histogram, of parts of steps that took so long."""
    bounds = SERIES["chairlift_step_seconds"].bounds
    buckets = [0] * (len(bounds) + 1)
    for step_s in steps_s:
        buckets[bisect_left(bounds, step_s)] += 1
    return replace(figures, histograms=[Counts(buckets, sum(steps_s))])


def test_histograms_are_added_and_begin_anew_with_the_engine(tmp_path: Path) -> None:
    fleet = FleetMetrics(tmp_path, has_own=False)
    fleet.show({"a": with_steps(A, 0.5)}, NUMBERS, 0)  # counted before it was heard of
    fleet.show({"a": with_steps(A, 0.5, 0.001, 3.0)}, NUMBERS, 0)
    fleet.show({"a": with_steps(A, 0.5, 0.001, 3.0), "b": A}, NUMBERS, 0)
    fleet.show({"a": with_steps(replace(A, born=9), 0.001), "b": with_steps(A, 100.0)}, NUMBERS, 0)
    scrape, name = Scrape.of(tmp_path), "chairlift_step_seconds"
    assert scrape.value(f"{name}_count", part="schedule") == 4
    assert scrape.value(f"{name}_sum", part="schedule") == pytest.approx(103.002)
    assert scrape.value(f"{name}_bucket", part="schedule", le="0.001") == 2
    assert scrape.value(f"{name}_bucket", part="schedule", le="60.0") == 3
    assert scrape.value(f"{name}_count", part="run") == 0


def test_histograms_with_other_buckets_are_left_out(tmp_path: Path) -> None:
    fleet = FleetMetrics(tmp_path, has_own=False)
    fleet.show({"a": A}, NUMBERS, 0)
    fleet.show({"a": replace(A, histograms=[Counts([1, 2, 3], 1.0)] * 40)}, NUMBERS, 0)
    fleet.show({"a": with_steps(A, 0.5)}, NUMBERS, 0)
    assert Scrape.of(tmp_path).value("chairlift_step_seconds_count", part="schedule") == 0


def test_a_member_that_left_disappears_and_its_counts_stay_in_the_sum(tmp_path: Path) -> None:
    fleet = FleetMetrics(tmp_path, has_own=False)
    fleet.show({"a": A, "b": A}, NUMBERS, 0)
    fleet.show({"a": made(A, 30), "b": made(A, 4)}, NUMBERS, 0)
    fleet.show({"a": made(A, 31)}, NUMBERS, 0)
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_generated_tokens_total") == 35
    assert {labels["replica"] for _, labels in replica_samples(scrape)} == {"1"}
    assert scrape.value("chairlift_requests_running") == 2


def test_a_list_that_begins_anew_shows_no_member_that_left_meanwhile(tmp_path: Path) -> None:
    FleetMetrics(tmp_path, has_own=False).show({"a": A, "b": made(A, 4)}, NUMBERS, 0)
    again = FleetMetrics(tmp_path, has_own=False)
    again.show({"a": A}, NUMBERS, 0)
    assert {labels["replica"] for _, labels in replica_samples(Scrape.of(tmp_path))} == {"1"}


def test_the_counters_of_an_own_engine_stay_while_it_is_started_again(tmp_path: Path) -> None:
    own = Store(tmp_path, "engine-1")
    own.counter("chairlift_replica_generated_tokens_total", "1").add(5)
    own.flush()
    assert Scrape.of(tmp_path).value("chairlift_replica_generated_tokens_total", replica="1") == 5


def test_what_was_counted_for_others_is_left_out_and_an_engine_that_begins_anew_counts_from_0(tmp_path: Path) -> None:
    fleet = FleetMetrics(tmp_path, has_own=False)
    fleet.show({"a": made(A, 1000)}, NUMBERS, 0)
    fleet.show({}, NUMBERS, 0)  # its engine loads
    fleet.show({"a": made(replace(A, born=8), 3)}, NUMBERS, 0)
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_generated_tokens_total") == 3
    assert scrape.value("chairlift_engine_restarts_total") == 1


def test_refusals_and_connections_without_a_key_are_counted(tmp_path: Path) -> None:
    fleet = FleetMetrics(tmp_path, has_own=False, reasons=("version", "model"))
    fleet.refused("model")
    fleet.show({"a": A}, NUMBERS, 2)
    fleet.show({"a": replace(A, turned_away=3)}, NUMBERS, 4)
    scrape = Scrape.of(tmp_path)
    assert scrape.value("chairlift_joins_refused_total", reason="model") == 1
    assert scrape.value("chairlift_joins_refused_total", reason="version") == 0
    assert scrape.value("chairlift_connections_turned_away_total") == 7


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(10))
def test_no_counter_goes_back_whatever_becomes_of_members(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    fleet, numbers = FleetMetrics(tmp_path, has_own=False), {f"m{i}": i for i in range(4)}
    figures = {address: Figures(born=i + 1) for i, address in enumerate(numbers)}
    last, num_counted, known = 0.0, 0, set[str]()
    for _ in range(30):
        for address in figures:
            if draw.random() < 0.2:
                figures[address] = Figures(born=draw.getrandbits(40))
            more = draw.randrange(5)
            figures[address] = made(figures[address], figures[address].generated_tokens + more)
        there = {address: each for address, each in figures.items() if draw.random() < 0.6}
        fleet.show(there, numbers, 0)
        known |= set(there)
        now = Scrape.of(tmp_path).value("chairlift_generated_tokens_total")
        assert now >= last
        num_counted += now > last
        last = now
    assert num_counted > 5


def replica_samples(scrape: Scrape) -> list[tuple[str, dict[str, str]]]:
    found = [(name, dict(labels)) for name, labels in scrape.samples]
    return [(name, labels) for name, labels in found if "replica" in labels]
