import pytest

from chairlift.core.scheduling.step_size import StepPace


def test_a_line_is_found_again() -> None:
    pace = StepPace()
    for num_tokens in (0, 100, 0, 4000, 700):
        pace.learn(num_tokens, 0.006 + 2e-5 * num_tokens)
    assert pace.fixed_s == pytest.approx(0.006)
    assert pace.token_s == pytest.approx(2e-5)


def test_tokens_take_nothing_while_all_steps_are_alike() -> None:
    pace = StepPace()
    for _ in range(5):
        pace.learn(0, 0.006)
    assert (pace.fixed_s, pace.token_s) == (pytest.approx(0.006), 0.0)


def test_the_fixed_time_follows_the_decodes() -> None:
    pace = StepPace()
    for fixed_s in [0.006] * 50 + [0.012] * 300:
        for num_tokens in (0, 1000):
            pace.learn(num_tokens, fixed_s + 2e-5 * num_tokens)
    assert pace.fixed_s == pytest.approx(0.012, rel=0.01)


def test_times_are_never_negative() -> None:
    pace = StepPace()
    for num_tokens, seconds in ((0, 0.5), (100, 0.1), (10, 0.0)):
        pace.learn(num_tokens, seconds)
    assert pace.token_s == 0.0
    assert pace.fixed_s >= 0.0
