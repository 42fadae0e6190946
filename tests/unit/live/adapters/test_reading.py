"""Requests that wait for their adapters, in a switchboard whose host memory has room for few of them."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.core.params import SamplingParams
from chairlift.live.adapters.registry import Adapter
from chairlift.live.recovery.quarantine import Quarantine
from chairlift.live.wire.messages import Abort, Submit, with_adapter
from chairlift.live.wire.switchboard import Switchboard
from chairlift.runner.adapters.store import AdapterStore
from fakes.switchboards import ledger_switchboard

HERE = b"here"


@dataclass
class Read:
    num_bytes: int = 100


def read(path: Path) -> Read:
    if path.name == "broken":
        raise InvalidConfig(f"{path}: cannot be served")
    return Read()


def board(max_bytes: int, num_slots: int = 1) -> Switchboard:
    return ledger_switchboard(num_adapter_slots=4, adapters=AdapterStore(read, max_bytes, num_slots=num_slots))


def submit(switchboard: Switchboard, key: int, adapter: int, max_output: int = 3, path: str = "fine") -> None:
    message = Submit(key, [1, 2, 3], SamplingParams(max_tokens=max_output), max_output)
    switchboard.submit(HERE, with_adapter(message, Adapter(adapter, str(adapter), path)))


def finish(switchboard: Switchboard, max_steps: int = 100) -> dict[int, str | None]:
    """Steps as long as there is work or something is read, as the engine's process does; how each request ended."""
    ended: dict[int, str | None] = {}
    for _ in range(max_steps):
        for output in switchboard.step().get(HERE, ()):
            if output.finish is not None:
                ended[output.key] = output.finish
        assert switchboard.reading is not None
        if not switchboard.has_work and not switchboard.reading.wait():
            return ended
    raise AssertionError("it does not end")


@pytest.mark.parametrize("num_slots", [1, 2, 4])
@pytest.mark.parametrize("max_bytes", [1, 100, 150, 250])
def test_all_requests_end_where_memory_holds_fewer_adapters_than_are_asked_for(max_bytes: int, num_slots: int) -> None:
    switchboard = board(max_bytes, num_slots)
    for key in range(1, 13):
        submit(switchboard, key, adapter=1 + key % 6)
    assert finish(switchboard) == dict.fromkeys(range(1, 13), "length")


def test_a_request_that_waits_for_room_goes_on_when_the_last_one_before_it_ends() -> None:
    switchboard = board(max_bytes=100)
    submit(switchboard, 1, adapter=1, max_output=5)
    assert switchboard.reading is not None and switchboard.reading.wait()
    switchboard.step()
    submit(switchboard, 2, adapter=2)  # the first one's adapter takes all room
    assert finish(switchboard) == {1: "length", 2: "length"}


def test_as_many_run_together_as_the_device_holds_whatever_the_memory() -> None:
    switchboard = board(max_bytes=1, num_slots=3)
    for adapter in range(1, 5):
        submit(switchboard, adapter, adapter, max_output=20)
    assert switchboard.reading is not None
    while switchboard.reading.wait():
        switchboard.step()
    assert sorted(switchboard.engine.scheduler.adapters) == [1, 2, 3]
    assert list(switchboard.reading.held) == [4]
    assert finish(switchboard) == dict.fromkeys(range(1, 5), "length")


def test_as_many_are_kept_as_the_device_holds_whatever_the_memory() -> None:
    switchboard = board(max_bytes=1, num_slots=3)
    assert switchboard.reading is not None
    for key, adapter in enumerate((1, 2, 3, 1, 4)):  # the first is there the second time, and used last
        submit(switchboard, key, adapter)
        finish(switchboard)
    assert [adapter for adapter in range(1, 5) if switchboard.reading._memory.use(adapter)] == [1, 3, 4]


def test_one_that_cannot_be_read_fails_its_own_requests_alone() -> None:
    switchboard = board(max_bytes=100)
    submit(switchboard, 1, adapter=1, path="broken")
    submit(switchboard, 2, adapter=2)
    submit(switchboard, 3, adapter=1, path="broken")
    assert finish(switchboard) == {1: "error", 2: "length", 3: "error"}


def test_aborted_requests_leave_nothing_behind_that_others_wait_for() -> None:
    switchboard = board(max_bytes=100)
    for key, adapter in ((1, 1), (2, 2), (3, 3)):
        submit(switchboard, key, adapter)
    switchboard.abort(HERE, Abort(1))
    switchboard.abort(HERE, Abort(2))
    assert finish(switchboard) == {3: "length"}
    assert switchboard.reading is not None and not switchboard.reading.held
    assert all(switchboard.reading.drop(adapter) for adapter in (1, 2, 3))


def test_an_adapter_of_a_request_that_waits_for_suspects_is_not_forgotten() -> None:
    switchboard = board(max_bytes=100)
    quarantine = Quarantine(switchboard)
    suspect = Submit(1, [1, 2, 3], SamplingParams(max_tokens=2), 2, num_alone=0)
    other = Submit(2, [1, 2, 3], SamplingParams(max_tokens=2), 2)
    quarantine.submit(HERE, suspect)
    quarantine.submit(HERE, with_adapter(other, Adapter(7, "sql", "fine")))
    assert not quarantine.forget_adapter(7)
    ended = set()
    while quarantine.has_work or (switchboard.reading is not None and switchboard.reading.wait()):
        ended |= {output.key for output in quarantine.step().get(HERE, ()) if output.finish is not None}
    assert ended == {1, 2}
    assert quarantine.forget_adapter(7)
