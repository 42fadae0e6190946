"""Who is in the steps under way, as the next engine finds it."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.ports import RunnerFailed
from chairlift.live.step_note import NotedRunner, StepNote
from fakes.ledger import LedgerRunner
from fakes.requests import make_request

WHO = {1: (b"a", 7), 2: (b"a", 8), 3: (b"b", 7)}


def who(requests: Iterable[RequestId]) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for front_end, key in (WHO[request] for request in requests):
        found.setdefault(front_end, set()).add(key)
    return found


def noted(path: Path) -> tuple[NotedRunner, LedgerRunner]:
    ledger = LedgerRunner(8, 4, 50, depth=2)
    return NotedRunner(ledger, StepNote(path), who), ledger


def step(number: int, *ids: int, samples: bool = True) -> StepPlan:
    """Prompts of two tokens, each in a block of its own."""
    chunks = []
    for id in ids:
        request = make_request(id, [1, 2])
        chunks.append(Chunk(request, 0, 2, [1, 2], 2, [BlockId(id)], 1, (request,) if samples else ()))
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


def test_a_step_whose_result_is_there_is_forgotten(path: Path) -> None:
    runner, _ = noted(path)
    for number in range(20):
        runner.submit(step(2 * number, 1, 2))
        runner.submit(step(2 * number + 1, 3))
        runner.collect()
        runner.collect()
    runner.submit(step(40, 1, 2))
    runner.submit(step(41, 3))
    runner.collect()
    assert StepNote(path).take().keys == {b"b": [7]}


def test_steps_that_make_a_token_are_progress_and_are_counted_over_all_engines(path: Path) -> None:
    for engine in range(3):
        runner, _ = noted(path)
        for number in range(4):
            runner.submit(step(number, 1, samples=number % 2 == 0))
            runner.collect()
        assert StepNote(path).progress == 2 * (engine + 1)


def test_a_step_that_failed_is_not_under_way(path: Path) -> None:
    runner, ledger = noted(path)
    ledger.fail_steps = frozenset([2])
    runner.submit(step(1, 1))
    with pytest.raises(RunnerFailed):
        runner.submit(step(2, 3))
    runner.submit(step(3, 2))
    runner.collect()
    assert StepNote(path).take().keys == {b"a": [8]}


def test_an_engine_was_alone_with_a_request_when_nobody_elses_was_in_a_step(path: Path) -> None:
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
