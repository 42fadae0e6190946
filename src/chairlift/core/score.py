"""How likely a token was, as runners report it."""

from collections.abc import Sequence
from typing import NamedTuple


class TokenScore(NamedTuple):
    """How likely a token was: before temperature, penalties and bias."""

    token: int
    logit: float
    logprob: float
    rank: int  # 1: the most likely
    top: tuple[tuple[int, float], ...]  # the k most likely (token, logprob), most likely first


def best_samples(samples: Sequence[Sequence[TokenScore | None]], count: int) -> list[int]:
    """Which samples are the most likely per token, best first; of equals, the earlier."""

    def mean(index: int) -> float:
        logprobs = [score.logprob for score in samples[index] if score is not None]
        return sum(logprobs) / max(1, len(logprobs))

    return sorted(range(len(samples)), key=lambda index: (-mean(index), index))[:count]
