import numpy as np

from chairlift.core.ids import BlockId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.runner.cuda.asks import Asks, StepAsks
from chairlift.runner.cuda.layout import lay_out
from chairlift.runner.cuda.rows import Rows
from chairlift.runner.noise import uniform
from fakes.requests import make_request, make_samples


class Desk:
    """Asks of one step after another."""

    def __init__(self) -> None:
        self.rows, self.asks = Rows(8), Asks(9)

    def of(self, *groups: tuple[Request, int]) -> StepAsks | None:
        """Each request computes its last token at this length."""
        chunks = [
            Chunk(r, length - 1, 1, [0] * length, length, [BlockId(0)] * 9, 9, (r,)) for r, length in groups
        ]  # fmt: skip
        return self.asks.of(lay_out(StepPlan(1, tuple(chunks), (), len(chunks), 0), self.rows, 4))


def floats(words: np.ndarray) -> list[float]:
    return words.copy().view(np.float32).tolist()


def test_a_step_of_likeliest_tokens_asks_nothing() -> None:
    greedy = make_request(1, range(3), temperature=0.0)
    pointless = make_request(2, range(3), temperature=0.0, min_tokens=2)  # nothing would stop it
    assert Desk().of((greedy, 3), (pointless, 3)) is None


def test_a_drawn_token_brings_its_parameters_and_the_noise_of_its_position() -> None:
    greedy = make_request(1, range(3), temperature=0.0)
    drawn = make_request(2, range(3), temperature=0.5, top_k=7, top_p=0.75, min_p=0.25, seed=-5, sample_index=3)
    asks = Desk().of((greedy, 3), (drawn, 5))
    assert asks is not None
    (draw,) = asks.draws
    assert draw[:3].tolist() == [1, 1, 7]
    assert floats(draw[3:6]) == [0.5, 0.75, 0.25]
    assert floats(draw[6:]) == [np.float32(uniform(-5, 3, 5, attempt)) for attempt in range(9)]
    assert not len(asks.penalties) and not len(asks.changes) and not len(asks.scored)


def test_penalties_bring_the_lengths_of_the_text() -> None:
    one = make_request(1, range(3), 9, temperature=0.0)
    two = make_request(2, range(3), 9, temperature=0.0, repetition_penalty=1.5, presence_penalty=0.5)
    asks = Desk().of((one, 3), (two, 8))
    assert asks is not None
    (penalty,) = asks.penalties
    assert penalty[:4].tolist() == [1, 1, 8, 3]
    assert floats(penalty[4:]) == [1.5, 0.5, 0.0]
    assert floats(asks.draws[0, 3:4]) == [0.0]  # the likeliest, once it is penalised


def test_the_samples_of_a_prompt_are_penalised_by_the_one_text() -> None:
    lead, sibling = make_samples(1, range(3), 2, repetition_penalty=2.0)
    chunk = Chunk(lead, 0, 3, [0, 1, 2], 3, [BlockId(0)], 1, (lead, sibling))
    desk = Desk()
    asks = desk.asks.of(lay_out(StepPlan(1, (chunk,), (), 3, 0), desk.rows, 4))
    assert asks is not None
    assert asks.penalties[:, :4].tolist() == [[0, 0, 3, 3], [1, 0, 3, 3]]
    assert asks.draws[:, 1].tolist() == [0, 1]


def test_stop_tokens_are_forbidden_until_the_minimum_length() -> None:
    held = make_request(1, range(3), temperature=0.0, min_tokens=2, stop_ids=frozenset({9, 4}), logit_bias={5: 1.5})
    desk = Desk()
    for length in (3, 4):
        asks = desk.of((held, length))
        assert asks is not None
        assert asks.changes[:, :2].tolist() == [[0, 5], [0, 4], [0, 9]]
        assert floats(asks.changes[:, 2]) == [1.5, -np.inf, -np.inf]
    asks = desk.of((held, 5))
    assert asks is not None and asks.changes[:, 1].tolist() == [5]


def test_scored_tokens_are_not_drawn_for_that() -> None:
    asks = Desk().of((make_request(1, range(3), temperature=0.0, logprobs=0), 3), (make_request(2, range(3)), 3))
    assert asks is not None
    assert (asks.scored.tolist(), asks.num_top) == ([0], [0])
    assert asks.draws[:, 0].tolist() == [1]


def test_a_row_that_goes_to_another_asks_for_that_one() -> None:
    desk = Desk()
    desk.rows = Rows(1)
    assert desk.of((make_request(1, range(3), logit_bias={1: 1.0}), 3)) is not None
    assert desk.of((make_request(2, range(3), temperature=0.0), 3)) is None
    asks = desk.of((make_request(2, range(3), temperature=2.0), 3))  # another under the same name
    assert asks is not None and floats(asks.draws[0, 3:4]) == [2.0]
