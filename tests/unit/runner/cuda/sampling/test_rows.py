import numpy as np

from chairlift.core.ids import BlockId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.runner.cuda.sampling.rows import SamplingRows
from chairlift.runner.cuda.step.host import HostPart
from fakes.requests import make_request, make_samples
from fakes.sampled import uniform


class Steps:
    """The sampling rows of one step after another."""

    def __init__(self, num_rows: int = 8) -> None:
        self.host, self.step = HostPart(num_rows, 9, 4), 0

    def of(self, *groups: tuple[Request, int]) -> SamplingRows:
        """Each request computes its last token at this length."""
        chunks = [
            Chunk(r, length - 1, 1, [0] * length, length, ([BlockId(0)] * 9,), 9, (r,)) for r, length in groups
        ]  # fmt: skip
        self.step += 1
        return self.host.input_of(StepPlan(self.step, tuple(chunks), (), len(chunks), 0)).sampling


def floats(words: np.ndarray) -> list[float]:
    return words.copy().view(np.float32).tolist()


def test_a_step_of_nothing_but_argmaxes_has_no_sampling_rows() -> None:
    greedy = make_request(1, range(3), temperature=0.0, top_p=0.5)
    pointless = make_request(2, range(3), temperature=0.0, min_tokens=2)  # nothing would stop it
    assert not any(map(len, Steps().of((greedy, 3), (pointless, 3))))


def test_a_drawn_token_brings_its_parameters_and_the_noise_of_its_position() -> None:
    greedy = make_request(1, range(3), temperature=0.0)
    drawn = make_request(2, range(3), temperature=0.5, top_k=7, top_p=0.75, min_p=0.25, seed=-5, sample_index=3)
    rows = Steps().of((greedy, 3), (drawn, 5))
    (draw,) = rows.draws
    assert draw[[0, 1, 3]].tolist() == [1, 1, 7]
    assert floats(draw[[2, 4, 5]]) == [0.5, 0.75, 0.25]
    assert floats(draw[6:]) == [np.float32(uniform(-5, 3, 5, attempt)) for attempt in range(9)]
    assert not len(rows.penalties) and not len(rows.changes) and not len(rows.scored)


def test_penalties_bring_the_lengths_of_the_text() -> None:
    one = make_request(1, range(3), 9, temperature=0.0)
    two = make_request(2, range(3), 9, temperature=0.0, repetition_penalty=1.5, presence_penalty=0.5)
    rows = Steps().of((one, 3), (two, 8))
    (penalty,) = rows.penalties
    assert penalty[:4].tolist() == [1, 1, 8, 3]
    assert floats(penalty[4:]) == [1.5, 0.5, 0.0]
    assert floats(rows.draws[0, 2:3]) == [0.0]  # the argmax, once it is penalised


def test_the_samples_of_a_prompt_are_penalised_by_the_one_text() -> None:
    lead, sibling = make_samples(1, range(3), 2, repetition_penalty=2.0)
    chunk = Chunk(lead, 0, 3, [0, 1, 2], 3, ([BlockId(0)],), 1, (lead, sibling))
    rows = HostPart(8, 64, 4).input_of(StepPlan(1, (chunk,), (), 3, 0)).sampling
    assert rows.penalties[:, :4].tolist() == [[0, 0, 3, 3], [1, 0, 3, 3]]
    assert rows.draws[:, 1].tolist() == [0, 1]


def test_stop_tokens_are_forbidden_until_the_minimum_length() -> None:
    held = make_request(1, range(3), temperature=0.0, min_tokens=2, stop_ids=frozenset({9, 4}), logit_bias={5: 1.5})
    steps = Steps()
    for length in (3, 4):
        rows = steps.of((held, length))
        assert rows.changes[:, :2].tolist() == [[0, 5], [0, 4], [0, 9]]
        assert floats(rows.changes[:, 2]) == [1.5, -np.inf, -np.inf]
    rows = steps.of((held, 5))
    assert rows.changes[:, 1].tolist() == [5]


def test_scored_tokens_are_not_drawn_for_that() -> None:
    rows = Steps().of((make_request(1, range(3), temperature=0.0, logprobs=0), 3), (make_request(2, range(3)), 3))
    assert (rows.scored.tolist(), rows.num_top.tolist()) == ([0], [0])
    assert rows.draws[:, 0].tolist() == [1]


def test_a_row_that_goes_to_another_rows_for_that_one() -> None:
    steps = Steps(num_rows=1)
    assert len(steps.of((make_request(1, range(3), logit_bias={1: 1.0}), 3)).changes) == 1
    assert not any(map(len, steps.of((make_request(2, range(3), temperature=0.0), 3))))


def test_another_scheduler_may_use_an_id_again() -> None:
    steps = Steps()
    for temperature in (1.0, 2.0):
        steps.step = 0
        rows = steps.of((make_request(2, range(3), temperature=temperature), 3))
        assert floats(rows.draws[0, 2:3]) == [temperature]
