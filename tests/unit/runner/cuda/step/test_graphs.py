"""Captured steps on streams that are not there: what is captured, what is run again, and what goes on without."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from chairlift.runner.cuda.step import graphs
from chairlift.runner.cuda.step.forward import Forward
from chairlift.runner.cuda.step.graphs import Graphs
from fakes.gpu import DoneEvent
from unit.runner.cuda.test_runner import do, make_runner

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)

MOST = 16  # tokens of a captured step


class FakeStreams:
    """Torch's streams and captures."""

    def __init__(self, can_end: bool) -> None:
        self.can_end = can_end
        self.current = "main"
        self.num_made = 0
        self.num_replayed = 0
        self.pools: list[Any] = []  # that captures were told to use

    def make(self) -> Any:
        self.num_made += 1
        return self

    def wait_stream(self, other: Any) -> None: ...

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, "side"
        try:
            yield
        finally:
            self.current = before

    def capture_begin(self, pool: Any, capture_error_mode: str) -> None:
        assert (self.current, capture_error_mode) == ("side", "relaxed")
        self.pools.append(pool)

    def capture_end(self) -> None:
        if not self.can_end:
            raise RuntimeError("operation failed due to a previous error during capture")

    def pool(self) -> str:
        return "shared"

    def replay(self) -> None:
        self.num_replayed += 1


def fake(monkeypatch: pytest.MonkeyPatch, can_end: bool) -> FakeStreams:
    streams = FakeStreams(can_end)
    for name, part in (
        ("Event", DoneEvent), ("current_stream", lambda: streams), ("Stream", streams.make), ("stream", streams.on),
        ("CUDAGraph", lambda: streams),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, part)
    return streams


def watch_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the tokens of each step that is launched kernel by kernel."""
    seen: list[int] = []
    run = Forward.run

    def watched(forward: Forward, key: Any, planned: Any) -> Any:
        seen.append(key.num_tokens)
        return run(forward, key, planned)

    monkeypatch.setattr(Forward, "run", watched)
    return seen


def test_a_step_is_captured_once_and_then_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, runs = fake(monkeypatch, can_end=True), watch_runs(monkeypatch)
    runner = make_runner()
    do(runner, (0, 3))
    assert (runs, streams.num_replayed) == ([4], 0)
    for _ in range(3):
        do(runner, (0, 3))
    assert (runs, streams.num_replayed) == ([4, MOST, MOST, 4], 3)  # the largest is run and captured before
    do(runner, (0, 5))
    do(runner, (0, 5))
    assert (runs[4:], streams.num_replayed) == ([8], 5)
    assert streams.pools == [None, "shared", "shared"]
    assert (streams.current, streams.num_made) == ("main", 1)


def test_a_long_step_is_captured_behind_its_first_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, runs = fake(monkeypatch, can_end=True), watch_runs(monkeypatch)
    monkeypatch.setattr(graphs, "LONG", 4)
    runner = make_runner()
    do(runner, (0, 3))
    do(runner, (0, 3))
    runs.clear()
    do(runner, (0, 5))
    assert (runs, streams.num_replayed) == ([8, 8], 1)  # launched, then captured
    do(runner, (0, 5))
    assert (runs, streams.num_replayed) == ([8, 8], 2)


def test_what_is_likely_is_captured_between_steps_until_all_of_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, runs = fake(monkeypatch, can_end=True), watch_runs(monkeypatch)
    runner = make_runner()
    while runner.prepare():
        pass
    assert sorted(set(runs)) == [1, 2, 4, 8, MOST]  # of up to six decodes, and prompts
    num = len(runs)
    assert len(streams.pools) + 1 == num  # the largest is run first
    do(runner, *[(2, 1)] * 5)
    assert (len(runs), streams.num_replayed) == (num, 1)


def test_with_graphs_off_nothing_is_captured_or_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, runs = fake(monkeypatch, can_end=True), watch_runs(monkeypatch)
    runner = make_runner()
    do(runner, (0, 3))
    do(runner, (0, 3))
    runner.uses_graphs = False
    runs.clear()
    do(runner, (0, 3))
    do(runner, (0, 5))
    assert (runs, len(streams.pools), streams.num_replayed) == ([4, 8], 2, 1)


def test_of_many_graphs_those_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, runs = fake(monkeypatch, can_end=True), watch_runs(monkeypatch)
    runner = make_runner(max_graphs=2)
    for count in (2, 2, 3, 3, 2, 5, 5):
        do(runner, (0, count))
    assert len(streams.pools) == 4
    runs.clear()
    do(runner, (0, 2))
    do(runner, (0, 5))
    assert not runs
    do(runner, (0, 3))
    assert (runs, len(streams.pools)) == ([4], 5)  # captured again


def test_preparing_ends_where_no_more_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = fake(monkeypatch, can_end=True)
    runner = make_runner(max_graphs=3)
    assert [runner.prepare() for _ in range(4)] == [True, True, False, False]  # the largest counts
    assert len(streams.pools) == 3


def test_with_room_for_no_graph_steps_run_without(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = fake(monkeypatch, can_end=True)
    plain = do(make_runner(), (0, 3), (2, 1))
    runner = make_runner(max_graphs=0)
    assert [do(runner, (0, 3), (2, 1)) for _ in range(3)] == [plain] * 3
    assert not runner.prepare() and not streams.pools


@pytest.mark.parametrize("is_largest", [True, False])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("operation not permitted when stream is capturing"), "operation not permitted"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
    ],
)
def test_after_a_capture_that_fails_steps_go_on_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, told: str, is_largest: bool
) -> None:
    streams = fake(monkeypatch, can_end=True)
    plain, longer = do(make_runner(), (0, 3), (2, 1)), do(make_runner(), (0, 5))
    runner = make_runner()
    if not is_largest:
        for _ in range(2):
            do(runner, (0, 2))  # with a graph that stays
    num_captured = len(streams.pools)
    if is_largest:
        assert do(runner, (0, 3), (2, 1)) == plain  # nothing is captured yet

    def fail(pool: Any, capture_error_mode: str) -> None:
        FakeStreams.capture_begin(streams, pool, capture_error_mode)
        raise error

    monkeypatch.setattr(streams, "capture_begin", fail)
    for _ in range(3):
        assert do(runner, (0, 3), (2, 1)) == plain
        assert do(runner, (0, 5)) == longer
    assert not runner.prepare()
    num_tries = 1 if is_largest or isinstance(error, torch.OutOfMemoryError) else 3  # one of each, and one again
    assert len(streams.pools) == num_captured + num_tries, "after one that failed for good nothing is captured"
    (line,) = [record.getMessage() for record in caplog.records]
    assert "no more steps are captured" in line and told in line
    num_replayed = streams.num_replayed
    do(runner, (0, 2))
    assert streams.num_replayed == num_replayed + (not is_largest)


def test_where_a_capture_cannot_be_ended_steps_go_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = fake(monkeypatch, can_end=False)
    with monkeypatch.context() as patch:
        patch.setattr(Graphs, "_capture", lambda *_: None)
        plain = do(make_runner(), (0, 3), (2, 1))
    runner = make_runner()
    for _ in range(2):
        assert do(runner, (0, 3), (2, 1)) == plain
    assert (streams.current, streams.num_made) == ("main", 1)
    assert not runner.prepare()
    do(runner, (0, 5))
    assert len(streams.pools) == 1, "after one that failed nothing is captured"
