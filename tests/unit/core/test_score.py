from chairlift.core.score import TokenScore, best_samples


def scores(*logprobs: float) -> list[TokenScore | None]:
    return [TokenScore(0, 0.0, logprob, 1, ()) for logprob in logprobs]


def test_the_likeliest_per_token_come_first() -> None:
    samples = [scores(-1.0, -1.0), scores(-0.5, -0.5, -0.5, -2.0), scores(-3.0), scores(-0.1, -0.3)]
    assert best_samples(samples, 3) == [3, 1, 0]


def test_of_equals_the_earlier_comes_first() -> None:
    assert best_samples([scores(-2.0), scores(-1.0, -1.0), scores(-1.0)], 2) == [1, 2]
