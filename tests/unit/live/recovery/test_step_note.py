"""Whom the engine is busy with, as the next one finds it."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.ports import RunnerFailed
from chairlift.live.recovery.step_note import NotedRunner, StepNote
from fakes.ledger import LedgerRunner
from fakes.requests import make_request

WHO = {1: (b"a", 7), 2: (b"a", 8), 3: (b"b", 7)}


def keys_of(requests: Iterable[RequestId]) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for front_end, key in (WHO[request] for request in requests):
        found.setdefault(front_end, set()).add(key)
    return found


def noted(path: Path) -> tuple[NotedRunner, LedgerRunner]:
    ledger = LedgerRunner(8, 4, 50, depth=2)
    return NotedRunner(ledger, StepNote(path), keys_of), ledger


def step(number: int, *ids: int, samples: bool = True) -> StepPlan:
    """Prompts of two tokens, each in a block of its own."""
    chunks = []
    for id in ids:
        request = make_request(id, [1, 2])
        chunks.append(Chunk(request, 0, 2, [1, 2], 2, ([BlockId(id)],), 1, (request,) if samples else ()))
    return StepPlan(number, tuple(chunks), (), 2 * len(chunks), 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "note"


def test_what_is_in_a_step_is_found_once_by_the_next_engine(path: Path) -> None:
    runner, _ = noted(path)
    runner.submit(step(1, 1, 2))
    runner.submit(step(2, 3))
    assert StepNote(path).take().keys == {b"a": [7, 8], b"b": [7]}
    assert StepNote(path).take().keys == {}


def test_a_step_is_noted_before_it_is_carried_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, ledger = noted(path)
    found = []
    monkeypatch.setattr(ledger, "submit", lambda plan: found.append(StepNote(path).take().keys))
    runner.submit(step(1, 3))
    assert found == [{b"b": [7]}]


def test_a_step_whose_result_is_there_is_forgotten_when_the_next_begins(path: Path) -> None:
    runner, _ = noted(path)
    for number in range(20):
        runner.submit(step(2 * number, 1, 2))
        runner.submit(step(2 * number + 1, 3))
        runner.collect()
        runner.collect()
    runner.submit(step(40, 1))
    assert StepNote(path).take().keys == {b"a": [7]}


def test_a_step_whose_result_is_there_is_noted_until_it_was_sent(path: Path) -> None:
    note = StepNote(path)
    runner = NotedRunner(LedgerRunner(8, 4, 50), note, keys_of)
    runner.submit(step(1, 3))
    runner.collect()
    assert StepNote(path).take().keys == {b"b": [7]}
    runner.submit(step(2, 3))
    runner.collect()
    note.rest()
    assert StepNote(path).take().keys == {}


def test_an_added_request_is_noted_by_itself_whatever_ended_before(path: Path) -> None:
    note = StepNote(path)
    runner = NotedRunner(LedgerRunner(8, 4, 50), note, keys_of)
    runner.submit(step(1, 3))
    runner.collect()
    note.take_in(b"a", 7)
    note.take_in(b"a", 8)
    left = StepNote(path).take()
    assert (left.keys, left.is_alone) == ({b"a": [8]}, True)


def test_a_request_added_beside_a_step_in_flight_is_not_alone(path: Path) -> None:
    note = StepNote(path)
    NotedRunner(LedgerRunner(8, 4, 50), note, keys_of).submit(step(1, 3))
    note.take_in(b"a", 8)
    left = StepNote(path).take()
    assert (left.keys, left.is_alone) == ({b"a": [8], b"b": [7]}, False)


def test_waiting_requests_are_noted_beside_the_last_step_while_the_next_is_planned(path: Path) -> None:
    note = StepNote(path)
    runner = NotedRunner(LedgerRunner(8, 4, 50), note, keys_of)
    runner.submit(step(1, 3))
    runner.collect()
    note.plan({b"a": {7, 8}})
    assert StepNote(path).take().keys == {b"a": [7, 8], b"b": [7]}
    note.plan({b"a": {7, 8}})
    runner.submit(step(2, 1))
    assert StepNote(path).take().keys == {b"a": [7]}


def test_more_requests_than_fit_are_not_noted(path: Path) -> None:
    note = StepNote(path)
    note.plan({b"a": {7}})
    note.plan({b"a": set(range(2**16, 2**17))})
    assert StepNote(path).take().keys == {}


def test_steps_that_make_a_token_are_progress_and_are_counted_over_all_engines(path: Path) -> None:
    for engine in range(3):
        note = StepNote(path)
        runner = NotedRunner(LedgerRunner(8, 4, 50), note, keys_of)
        for number in range(1, 5):
            note.plan({})
            runner.submit(step(number, 1, samples=number % 2 == 0))
            runner.collect()
        assert StepNote(path).progress == 2 * engine + 1  # the last was not told yet
        note.rest()
        assert StepNote(path).progress == 2 * (engine + 1)


def test_a_step_that_failed_is_not_in_flight(path: Path) -> None:
    runner, ledger = noted(path)
    ledger.fail_steps = frozenset([2])
    runner.submit(step(1, 1))
    with pytest.raises(RunnerFailed):
        runner.submit(step(2, 3))
    runner.submit(step(3, 2))
    runner.collect()
    runner.submit(step(4, 2))
    assert StepNote(path).take().keys == {b"a": [8]}


def test_an_engine_was_alone_with_a_request_when_no_other_was_in_a_step(path: Path) -> None:
    runner, _ = noted(path)
    runner.submit(step(1, 3))
    assert StepNote(path).take().is_alone
    runner.submit(step(2, 3))
    runner.submit(step(3, 1))
    assert not StepNote(path).take().is_alone


def test_how_the_engine_ended_is_told_with_its_steps(path: Path) -> None:
    parent = StepNote(path)
    parent.tell_end(was_killed=True)
    assert StepNote(path).take().was_killed
    assert not StepNote(path).take().was_killed


def test_an_engine_that_dies_before_it_has_looked_changes_nothing_of_what_is_known(path: Path) -> None:
    parent, (runner, _) = StepNote(path), noted(path)
    runner.submit(step(1, 3))
    parent.tell_end(was_killed=False)
    parent.tell_end(was_killed=True)  # the next one, while it started
    left = StepNote(path).take()
    assert (left.keys, left.was_killed) == ({b"b": [7]}, False)


def test_waiting_requests_are_noted_while_a_second_step_is_planned_but_not_while_one_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = StepNote(path)
    ledger = LedgerRunner(8, 4, 50, depth=2)
    runner = NotedRunner(ledger, note, keys_of)
    found: list[dict[bytes, list[int]]] = []

    def look() -> None:
        kept = path.read_bytes()
        found.append(StepNote(path).take().keys)
        path.write_bytes(kept)

    submit, collect = ledger.submit, ledger.collect
    monkeypatch.setattr(ledger, "submit", lambda plan: (look(), submit(plan)))
    monkeypatch.setattr(ledger, "collect", lambda: (look(), collect())[1])
    note.plan({b"b": {7}})
    runner.submit(step(1, 1))
    look()
    runner.submit(step(2, 2))
    look()
    runner.collect()
    assert found == [{b"a": [7]}, {b"a": [7], b"b": [7]}, {b"a": [7, 8]}, {b"a": [7, 8], b"b": [7]}, {b"a": [7, 8]}]


def test_waiting_requests_are_noted_again_when_a_step_failed_to_begin(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = StepNote(path)
    ledger = LedgerRunner(8, 4, 50)
    runner = NotedRunner(ledger, note, keys_of)

    def fail(plan: StepPlan) -> None:
        raise RunnerFailed("no memory")

    monkeypatch.setattr(ledger, "submit", fail)
    note.plan({b"b": {7}})
    with pytest.raises(RunnerFailed):
        runner.submit(step(1, 1))
    assert StepNote(path).take().keys == {b"b": [7]}
