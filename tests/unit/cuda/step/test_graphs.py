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
from unit.cuda.test_runner import Event_, do, make_runner

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
)


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

    def capture_begin(self, pool: Any) -> None:
        assert self.current == "side"
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
        ("Event", Event_), ("current_stream", lambda: streams), ("Stream", streams.make), ("stream", streams.on),
        ("CUDAGraph", lambda: streams), ("synchronize", lambda: None),
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
    for _ in range(4):
        do(runner, (0, 3))
    assert (runs, streams.num_replayed) == ([4, 4, 4], 3)  # at first, the stream's first, and captured
    do(runner, (0, 5))
    assert (runs, streams.num_replayed) == ([4, 4, 4, 8], 3)
    do(runner, (0, 5))
    assert (runs, streams.num_replayed) == ([4, 4, 4, 8, 8], 4)
    assert streams.pools == [None, "shared"]
    assert (streams.current, streams.num_made) == ("main", 1)


def test_what_is_likely_is_captured_between_steps_until_all_of_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, runs = fake(monkeypatch, can_end=True), watch_runs(monkeypatch)
    runner = make_runner()
    while runner.prepare():
        pass
    assert sorted(set(runs)) == [1, 2, 4, 8]  # of up to six decodes
    num = len(runs)
    assert len(streams.pools) * 2 == num
    do(runner, *[(2, 1)] * 5)
    assert (len(runs), streams.num_replayed) == (num, 1)


def test_with_graphs_off_nothing_is_captured_or_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, runs = fake(monkeypatch, can_end=True), watch_runs(monkeypatch)
    runner = make_runner()
    do(runner, (0, 3))
    do(runner, (0, 3))
    runner.uses_graphs = False
    do(runner, (0, 3))
    do(runner, (0, 5))
    assert (runs, len(streams.pools), streams.num_replayed) == ([4, 4, 4, 4, 8], 1, 1)


def test_of_many_graphs_those_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    streams, runs = fake(monkeypatch, can_end=True), watch_runs(monkeypatch)
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 2)
    runner = make_runner()
    for count in (2, 2, 3, 3, 2, 5, 5):
        do(runner, (0, count))
    assert len(streams.pools) == 3
    runs.clear()
    do(runner, (0, 2))
    do(runner, (0, 5))
    assert not runs
    do(runner, (0, 3))
    assert (runs, len(streams.pools)) == ([4], 4)  # captured again


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
