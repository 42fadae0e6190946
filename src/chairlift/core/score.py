"""How likely a token was, as runners report it."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class TokenScore(NamedTuple):
    """How likely a token was: before temperature, penalties and bias."""

    token: int
    logit: float
    logprob: float
    rank: int  # 1: the most likely
    top: tuple[tuple[int, float], ...]  # the k most likely (token, logprob), most likely first


class PackedScores(NamedTuple):
    """The scores of many tokens on their way between processes. Of each: its token and rank, then the tokens at the
    top; beside them logit, logprob and theirs; and where it ends in both."""

    ids: bytes = b""
    numbers: bytes = b""
    ends: bytes = b""


class ScoreList(Sequence[TokenScore | None]):
    """The scores of many tokens: 12 bytes for each number, of which a value would take 130. Read like a tuple."""

    __slots__ = ("_ends", "_ids", "_num", "_numbers", "_sum")

    def __init__(self, scores: Iterable[TokenScore | None] = ()) -> None:
        self._sum, self._num = 0.0, 0  # of log-probabilities
        self._ids: Any = array("i")
        self._numbers: Any = array("d")
        self._ends: Any = array("q")
        self.extend(scores)

    def __repr__(self) -> str:
        return f"ScoreList({list(self)})"

    @classmethod
    def of(cls, packed: PackedScores) -> "ScoreList":
        """To be read alone: it shares their memory."""
        found = cls.__new__(cls)
        found._ids, found._numbers = memoryview(packed.ids).cast("i"), memoryview(packed.numbers).cast("d")
        found._ends = memoryview(packed.ends).cast("q")
        return found

    def packed(self) -> PackedScores:
        return PackedScores(self._ids.tobytes(), self._numbers.tobytes(), self._ends.tobytes())

    def __len__(self) -> int:
        return len(self._ends)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreList):
            return NotImplemented
        return (self._ids, self._numbers, self._ends) == (other._ids, other._numbers, other._ends)

    __hash__ = None  # type: ignore[assignment]

    def append(self, score: TokenScore | None) -> None:
        if score is not None:
            self._ids.extend((score.token, score.rank, *[token for token, _ in score.top]))
            self._sum += score.logprob
            self._num += 1
            self._numbers.extend((score.logit, score.logprob, *[logprob for _, logprob in score.top]))
        self._ends.append(len(self._ids))

    @property
    def mean_logprob(self) -> float:
        return self._sum / max(1, self._num)

    def extend(self, scores: Iterable[TokenScore | None]) -> None:
        for score in scores:
            self.append(score)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        start, end = self._ends[index - 1] if index else 0, self._ends[index]
        if start == end:
            return None
        (token, rank, *ids), (logit, logprob, *numbers) = self._ids[start:end], self._numbers[start:end]
        return TokenScore(token, logit, logprob, rank, tuple(zip(ids, numbers, strict=True)))


def best_samples(samples: Sequence[ScoreList], count: int) -> list[int]:
    """Which samples are the most likely per token, best first; of equals, the earlier."""
    return sorted(range(len(samples)), key=lambda index: (-samples[index].mean_logprob, index))[:count]
