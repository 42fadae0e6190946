import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chairlift.telemetry import device
from chairlift.telemetry.device import DeviceReader, DeviceSampler, DeviceUse
from chairlift.telemetry.metrics.store import Store
from fakes.patience import wait_until
from fakes.scrapes import Scrape, own_values

NAMES = {name: f"chairlift_device_{name}" for name in DeviceUse.__struct_fields__}


@pytest.fixture(autouse=True)
def _own_values(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(device, "PERIOD_S", 0.001)
    with own_values():
        yield


class Samples:
    """Given one after the other, each once it is asked for; a thread that asks for more waits for ever."""

    def __init__(self, *samples: DeviceUse) -> None:
        self._samples = list(samples)
        self._may_go_on = threading.Semaphore(0)

    def read(self) -> DeviceUse:
        self._may_go_on.acquire()
        return self._samples.pop(0)

    def next(self) -> None:
        self._may_go_on.release()


def sampler(folder: Path, find: Callable[[], DeviceReader | None]) -> DeviceSampler:
    made = DeviceSampler(Store(folder, "engine"), find)
    made.start()
    return made


def test_samples_are_shown_and_what_is_unknown_is_not(tmp_path: Path) -> None:
    samples = Samples(DeviceUse(0.5, 60, 80, 300.0, None), DeviceUse(), DeviceUse(busy_ratio=0.25))
    found = sampler(tmp_path, lambda: samples.read)
    assert found.latest is None
    samples.next()
    wait_until(lambda: found.latest is not None)
    scrape = Scrape.of(tmp_path)
    assert [scrape.value(NAMES[name]) for name in ("busy_ratio", "memory_used_bytes", "power_watts")] == [0.5, 60, 300]
    assert not scrape.has(NAMES["power_limit_watts"])
    assert found.latest == DeviceUse(0.5, 60, 80, 300.0, None)
    samples.next()
    wait_until(lambda: found.latest == DeviceUse())
    assert "chairlift_device" not in str(Scrape.of(tmp_path).families), "a series without values is left out whole"
    samples.next()
    wait_until(lambda: found.latest == DeviceUse(busy_ratio=0.25))
    assert Scrape.of(tmp_path).value(NAMES["busy_ratio"]) == 0.25


def test_without_a_reader_nothing_is_shown_and_the_thread_ends(tmp_path: Path) -> None:
    before = threading.active_count()
    found = sampler(tmp_path, lambda: None)
    wait_until(lambda: threading.active_count() <= before)
    assert found.latest is None
    assert not any(Scrape.of(tmp_path).has(name) for name in NAMES.values())
