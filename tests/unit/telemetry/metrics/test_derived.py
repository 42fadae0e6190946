from collections.abc import Iterator
from pathlib import Path

import pytest

from chairlift.telemetry.metrics.store import Store
from fakes.scrapes import Scrape, own_values


@pytest.fixture(autouse=True)
def _own_values() -> Iterator[None]:
    with own_values():
        yield


def test_the_held_ratio_is_of_held_blocks_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, "engine")
    for state, value in (("free", 20), ("cached", 30), ("held", 150), ("swapped", 70)):
        store.gauge("chairlift_kv_blocks", state).set(value)
    store.gauge("chairlift_kv_capacity_blocks").set(200)
    store.flush()
    assert Scrape.of(tmp_path).value("chairlift_kv_held_ratio") == 0.75


def test_without_an_engine_there_is_no_held_ratio(tmp_path: Path) -> None:
    store = Store(tmp_path, "front-end-0")
    store.counter("chairlift_requests_total", "/a", "finished", "stop").add(1)
    store.flush()
    assert not Scrape.of(tmp_path).has("chairlift_kv_held_ratio")
