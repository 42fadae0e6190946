import random

from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.step_forecast import StepForecast, StepSize, size_of
from fakes.requests import make_request


def true_s(size: StepSize) -> float:
    """Padded to 64 tokens beyond 256, as products are; contexts are read besides."""
    rows = size.num_tokens if size.num_tokens <= 256 else -(-size.num_tokens // 64) * 64
    return 4e-3 + 2e-5 * rows + 5e-8 * size.context


def random_size(rng: random.Random) -> StepSize:
    num_decodes = rng.randint(20, 60)
    num_tokens = num_decodes + (rng.randint(30, 2000) if rng.random() < 0.3 else 0)
    return StepSize(num_tokens, num_decodes * rng.randint(300, 3000))


def test_the_size_of_a_step_has_its_tokens_and_all_contexts() -> None:
    request = make_request(1, [1])
    chunks = tuple(Chunk(request, start, count, [1], 1, ((),), 0, ()) for start, count in ((7, 1), (9, 1), (16, 30)))
    assert size_of(StepPlan(1, chunks, (), 32, 2)) == StepSize(32, 32)


def test_an_unknown_step_takes_no_time() -> None:
    forecast = StepForecast()
    assert forecast.seconds(StepSize(8, 100)) == 0.0
    forecast.learn(StepSize(8, 100), 0.01, at_most=False)
    assert forecast.seconds(StepSize(8, 100)) > 0.0
    assert forecast.seconds(StepSize(16, 100)) == 0.0


def test_steps_of_many_shapes_are_learned() -> None:
    rng, forecast, shares = random.Random(3), StepForecast(), []
    for number in range(3000):
        size = random_size(rng)
        seconds = true_s(size) * rng.gauss(1.0, 0.02)
        if number >= 1000:
            shares.append(forecast.seconds(size) / seconds)
        forecast.learn(size, seconds, at_most=False)
    shares.sort()
    assert shares[len(shares) // 2] > 0.85  # near, and
    assert shares[len(shares) * 9 // 10] < 1.0  # seldom too long
    assert shares[-1] < 1.2


def test_steps_that_become_shorter_are_followed_at_once_and_longer_ones_after_a_while() -> None:
    forecast, size = StepForecast(), StepSize(64, 10_000)
    for _ in range(50):
        forecast.learn(size, 0.020, at_most=False)
    forecast.learn(size, 0.010, at_most=False)
    assert forecast.seconds(size) < 0.011
    for _ in range(100):
        forecast.learn(size, 0.030, at_most=False)
    assert 0.025 < forecast.seconds(size) < 0.031


def test_a_bound_counts_only_below_the_forecast() -> None:
    forecast, size = StepForecast(), StepSize(64, 10_000)
    for _ in range(20):
        forecast.learn(size, 0.020, at_most=False)
    for _ in range(20):
        forecast.learn(size, 0.050, at_most=True)
    assert forecast.seconds(size) == 0.020
    forecast.learn(size, 0.010, at_most=True)
    assert forecast.seconds(size) < 0.011
