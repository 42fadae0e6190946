from chairlift.core.score import ScoreList, TokenScore, best_samples


def scores(*logprobs: float) -> ScoreList:
    return ScoreList([TokenScore(0, 0.0, logprob, 1, ()) for logprob in logprobs])


def test_the_likeliest_per_token_come_first() -> None:
    samples = [scores(-1.0, -1.0), scores(-0.5, -0.5, -0.5, -2.0), scores(-3.0), scores(-0.1, -0.3)]
    assert best_samples(samples, 3) == [3, 1, 0]


def test_of_equals_the_earlier_comes_first() -> None:
    assert best_samples([scores(-2.0), scores(-1.0, -1.0), scores(-1.0)], 2) == [1, 2]


SCORES = [
    None,
    TokenScore(7, -1.5, -0.25, 1, ((7, -0.25), (3, float("-inf")))),
    TokenScore(3, 2.0, float("-inf"), 90_000, ()),
]


def test_packed_scores_are_the_scores() -> None:
    made = ScoreList(SCORES)
    packed = ScoreList.of(made.packed())
    assert packed == made != ScoreList(SCORES[:2])
    assert list(made) == list(packed) == [packed[i] for i in range(3)] == SCORES
    assert (packed[1:], packed[-1], packed[:0]) == (SCORES[1:], SCORES[-1], [])
