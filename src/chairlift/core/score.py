"""How likely a token was, as runners report it."""

from typing import NamedTuple


class TokenScore(NamedTuple):
    """How likely a token was: before temperature, penalties and bias."""

    token: int
    logit: float
    logprob: float
    rank: int  # 1: the most likely
    top: tuple[tuple[int, float], ...]  # the k most likely (token, logprob), most likely first
