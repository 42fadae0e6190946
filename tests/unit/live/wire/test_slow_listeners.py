"""What comes for a client that reads slowly is kept, up to a bound."""

from typing import Any

import pytest

from chairlift.core.params import SamplingParams
from chairlift.core.score import TokenScore
from chairlift.live.wire import generation as kept
from chairlift.live.wire.generation import Generation, TooSlow
from chairlift.live.wire.messages import Output
from fakes.submits import submit


class Wire:
    def __init__(self) -> None:
        self.num_held = 0
        self.aborted: list[int] = []

    def abort(self, key: int, sample: int | None) -> None:
        self.aborted.append(key)

    def forget(self, key: int) -> None:
        pass


class Reader:
    def __init__(self) -> None:
        self.tokens: list[int | None] = []
        self.error: Exception | None = None

    def put(self, output: Output) -> None:
        self.tokens.append(output.token)

    def fail(self, error: Exception) -> None:
        self.error = error


def generation(wire: Wire, key: int, reader: Reader) -> Generation:
    client: Any = wire
    return Generation(client, submit(key, [1], SamplingParams()), reader)


def test_a_request_beyond_the_bound_of_held_outputs_is_ended_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_HELD", 130)  # bytes: three small outputs
    wire, slow, slower = Wire(), Reader(), Reader()
    first, second = generation(wire, 1, slow), generation(wire, 2, slower)
    for each in (first, second):
        each.hold()
    for token in (5, 6):
        first.put(Output(1, 0, token))
        second.put(Output(2, 0, token))
    assert (slow.error, type(slower.error)) == (None, TooSlow)
    assert wire.aborted == [2]
    assert 0 < wire.num_held < 130
    first.release()
    assert slow.tokens == [5, 6]
    assert wire.num_held == 0


def test_what_was_kept_is_handed_out_in_pieces_and_scores_take_little_room() -> None:
    wire, slow = Wire(), Reader()
    kept = generation(wire, 1, slow)
    kept.hold()
    score = TokenScore(7, 1.5, -0.25, 1, tuple((i, -i / 7) for i in range(100)))
    for token in (5, 6):
        kept.put(Output(1, 0, token, score=score))
    assert wire.num_held < 2 * 100 * 16
    assert not kept.release(until=0.0)
    kept.put(Output(1, 0, 7))  # behind what is left
    assert slow.tokens == [5]
    assert kept.release()
    assert slow.tokens == [5, 6, 7]


def test_what_was_kept_for_a_client_that_left_is_not_counted_any_more() -> None:
    wire = Wire()
    left = generation(wire, 1, Reader())
    left.hold()
    left.put(Output(1, 0, 5))
    left.abort()
    left.release()
    assert wire.num_held == 0
