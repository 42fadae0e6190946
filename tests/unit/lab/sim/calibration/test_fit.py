from dataclasses import replace

import numpy as np
import pytest

from chairlift.core.limits import Limits
from chairlift.lab.sim.calibration.fit import fit, non_negative_least_squares
from chairlift.lab.sim.calibration.grid import Span, grid, plan_of
from chairlift.lab.sim.cost import CostModel, shape_of

LIMITS = Limits(vocab_size=100, max_model_len=4096, block_size=16, num_blocks=2048, max_running=64, max_step_tokens=256)
TRUTH = CostModel(
    linear=((1, 0.010), (16, 0.011), (64, 0.030), (256, 0.110)), sample_s=4e-5, chunk_s=1e-5,
    kv_token_s=3e-6, pair_s=2e-7,
)  # fmt: skip


def test_a_fit_finds_the_model_that_made_the_times() -> None:
    shapes = [shape_of(plan_of(step, LIMITS), LIMITS.block_size) for step in grid(LIMITS)]
    found = fit(shapes, [TRUTH.seconds(shape) for shape in shapes])
    assert found.max_error < 0.01
    assert found.cost.kv_token_s == pytest.approx(3e-6, rel=0.05)
    assert found.cost.pair_s == pytest.approx(2e-7, rel=0.05)
    for rows in (1, 16, 64, 256):
        assert found.cost.linear_s(rows) == pytest.approx(TRUTH.linear_s(rows), rel=0.02)


def test_a_noisy_fit_predicts_shapes_it_has_not_seen() -> None:
    rng = np.random.default_rng(3)
    shapes = [shape_of(plan_of(step, LIMITS), LIMITS.block_size) for step in grid(LIMITS)]
    found = fit(shapes, [TRUTH.seconds(shape) * rng.normal(1.0, 0.03) for shape in shapes])
    unseen = shape_of(plan_of((Span(300),) * 24 + (Span(0, 100),), LIMITS), LIMITS.block_size)
    assert found.cost.seconds(unseen) == pytest.approx(TRUTH.seconds(unseen), rel=0.06)
    assert found.mean_error < 0.04


def test_a_few_spoilt_timings_do_not_bend_the_rest() -> None:
    shapes = [shape_of(plan_of(step, LIMITS), LIMITS.block_size) for step in grid(LIMITS)]
    seconds = [TRUTH.seconds(shape) * (3.0 if number % 12 == 5 else 1.0) for number, shape in enumerate(shapes)]
    found = fit(shapes, seconds)
    assert found.cost.kv_token_s == pytest.approx(3e-6, rel=0.1)
    unseen = shape_of(plan_of((Span(300),) * 24 + (Span(0, 100),), LIMITS), LIMITS.block_size)
    assert found.cost.seconds(unseen) == pytest.approx(TRUTH.seconds(unseen), rel=0.03)


def test_a_fit_tells_what_waits_for_its_launch() -> None:
    truth = replace(TRUTH, launch_s=0.025, max_row_pairs=1024)
    shapes = [shape_of(plan_of(step, LIMITS), LIMITS.block_size, 1024) for step in grid(LIMITS)]
    found = fit(shapes, [truth.seconds(shape) for shape in shapes], 1024)
    assert found.max_error < 0.01
    assert found.cost.launch_s == pytest.approx(0.025, rel=0.02)
    assert found.cost.max_row_pairs == 1024


def test_a_fitted_table_never_falls_and_no_rate_is_negative() -> None:
    rng = np.random.default_rng(0)
    shapes = [shape_of(plan_of(step, LIMITS), LIMITS.block_size) for step in grid(LIMITS)]
    cost = fit(shapes, [float(rng.uniform(0.5, 1.5)) for _ in shapes]).cost
    seconds = [value for _, value in cost.linear]
    assert seconds == sorted(seconds)
    assert min(cost.sample_s, cost.chunk_s, cost.kv_token_s, cost.pair_s, seconds[0]) >= 0.0


def test_least_squares_without_a_bound_in_reach_are_plain_ones() -> None:
    rng = np.random.default_rng(1)
    columns = rng.uniform(0, 1, (30, 5))
    want = np.array([1.0, 2.0, 0.5, 3.0, 0.1])
    assert non_negative_least_squares(columns, columns @ want) == pytest.approx(want)


def test_a_solution_that_would_be_negative_is_held_at_zero() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        columns, target = rng.normal(size=(20, 6)), rng.normal(size=20)
        found = non_negative_least_squares(columns, target)
        slope = columns.T @ (target - columns @ found)
        assert (found >= 0).all()
        # The best there is: pushing a zero up does not help, and the others stand still.
        assert (slope[found == 0] <= 1e-8).all()
        assert slope[found > 0] == pytest.approx(np.zeros((found > 0).sum()), abs=1e-8)


def test_what_steps_with_prompts_cost_more_and_the_padding_are_found() -> None:
    truth = replace(TRUTH, prompt_s=0.004, rungs=(16, 64, 128, 192, 256))
    shapes = [shape_of(plan_of(step, LIMITS), LIMITS.block_size) for step in grid(LIMITS)]
    seconds = [truth.seconds(shape) for shape in shapes]
    found = fit(shapes, seconds, rungs=truth.rungs)
    assert found.max_error < 0.01
    assert found.cost.prompt_s == pytest.approx(0.004, rel=0.1)
    assert found.cost.rungs == truth.rungs
    assert found.cost.linear_s(70) == pytest.approx(truth.linear_s(70), rel=0.01)
    assert fit(shapes, seconds).cost.linear_s(70) < 0.9 * truth.linear_s(70)  # without knowing of the padding
