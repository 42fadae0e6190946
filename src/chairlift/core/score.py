"""How likely a token was, as runners report it."""

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple


class TokenScore(NamedTuple):
    """How likely a token was: before temperature, penalties and bias."""

    token: int
    logit: float
    logprob: float
    rank: int  # 1: the most likely
    top: tuple[tuple[int, float], ...]  # the k most likely (token, logprob), most likely first


class ScoreList(Sequence[TokenScore | None]):
    """The scores of many tokens: 12 bytes for each number, of which a value would take 130."""

    __slots__ = ("_ends", "_ids", "_numbers")

    def __init__(self) -> None:
        # Of each score: its token and rank, then the tokens at the top; beside them logit, logprob and theirs.
        self._ids, self._numbers = array("i"), array("d")
        self._ends = array("q")  # where each score ends in both

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, score: TokenScore | None) -> None:
        if score is not None:
            self._ids.extend((score.token, score.rank, *[token for token, _ in score.top]))
            self._numbers.extend((score.logit, score.logprob, *[logprob for _, logprob in score.top]))
        self._ends.append(len(self._ids))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        start, end = self._ends[index - 1] if index else 0, self._ends[index]
        if start == end:
            return None
        (token, rank, *ids), (logit, logprob, *numbers) = self._ids[start:end], self._numbers[start:end]
        return TokenScore(token, logit, logprob, rank, tuple(zip(ids, numbers, strict=True)))


def best_samples(samples: Sequence[Sequence[TokenScore | None]], count: int) -> list[int]:
    """Which samples are the most likely per token, best first; of equals, the earlier."""

    def mean(index: int) -> float:
        logprobs = [score.logprob for score in samples[index] if score is not None]
        return sum(logprobs) / max(1, len(logprobs))

    return sorted(range(len(samples)), key=lambda index: (-mean(index), index))[:count]
