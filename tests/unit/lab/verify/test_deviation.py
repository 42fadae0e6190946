"""How far two runs are apart."""

import json

import numpy as np
import pytest

from chairlift.lab.verify.deviation import Deviation
from chairlift.lab.verify.output import SampleKey, SampleOutput


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_rows_of_the_same_bits_differ_in_nothing() -> None:
    deviation = Deviation()
    deviation.add_row(row(1, 2, 3), row(1, 2, 3))
    assert (deviation.num_rows, deviation.num_differing, deviation.max_error, deviation.same_top) == (1, 0, 0.0, 1.0)


def test_one_bit_is_a_difference() -> None:
    deviation = Deviation()
    deviation.add_row(row(1, 2, 0.0), row(1, 2, -0.0))
    assert (deviation.num_differing, deviation.max_error) == (1, 0.0)


def test_errors_argmax_and_divergence_are_measured() -> None:
    deviation = Deviation()
    deviation.add_row(row(0, 0), row(0, np.log(3)))
    assert deviation.max_error == pytest.approx(np.log(3))
    assert deviation.mean_error == pytest.approx(np.log(3) / 2)
    assert deviation.same_top == 0.0
    assert deviation.mean_kl == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(2 / 3))


def test_an_error_counts_in_spreads_of_the_expected_row() -> None:
    small, large = Deviation(), Deviation()
    small.add_row(row(-1, 1), row(-1, 1.5))
    large.add_row(row(-10, 10), row(-10, 15))
    assert small.max_spreads == pytest.approx(0.5)
    assert large.max_spreads == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_is_infinitely_wrong_and_can_be_told_in_json(bad: float) -> None:
    deviation = Deviation()
    deviation.add_row(row(1, 2, 3), row(1, bad, 3))
    assert deviation.max_error == np.inf
    json.dumps(deviation.to_json(), allow_nan=False)


def test_rows_after_texts_have_parted_are_not_compared() -> None:
    same, other = row(0, 1), row(1, 0)
    expected = SampleOutput(3, [5, 6, 7], {2: same, 3: same, 4: same})
    found = SampleOutput(3, [5, 9, 7], {2: same, 3: other, 4: other})
    deviation = Deviation.of({SampleKey(0, 0): expected}, {SampleKey(0, 0): found})
    # The row in which they part is still of the same text.
    assert (deviation.num_rows, deviation.num_differing, deviation.num_apart) == (2, 1, 1)
    assert (deviation.num_other_tokens, deviation.num_tokens, deviation.num_other_texts) == (1, 3, 1)


def test_an_answer_that_is_shorter_is_another_text() -> None:
    deviation = Deviation()
    deviation.add_output(SampleOutput(1, [5, 6]), SampleOutput(1, [5]))
    assert (deviation.num_other_tokens, deviation.num_tokens, deviation.num_other_texts) == (1, 2, 1)


def test_a_row_that_only_one_run_has_differs() -> None:
    same = row(0, 1)
    deviation = Deviation()
    deviation.add_output(
        SampleOutput(1, [5, 6, 7], {0: same, 1: same, 2: same}), SampleOutput(1, [5, 6, 7], {0: same, 2: same}), "it"
    )
    assert (deviation.num_rows, deviation.num_differing, deviation.first) == (3, 1, "it, position 1")
