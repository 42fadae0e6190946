"""What came of one sample of a request, wherever and in whatever company it was run: what runs are compared by."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.floating[Any]]


class Key(NamedTuple):
    """Which sample of which case."""

    case: int
    sample: int


class Mark(NamedTuple):
    """What is left of a row that is not kept."""

    logprob: float  # of the token that was chosen from it
    digest: str  # of its bits; empty: they were not seen


@dataclass(slots=True)
class Answer:
    """rows[p] are the logits [vocab] that follow the token at position p, counted from 0 over prompt and output. What
    comes over HTTP has log-probabilities in their place: of the chosen token, then of the likeliest ones."""

    num_prompt: int
    tokens: list[int] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)
    marks: dict[int, Mark] = field(default_factory=dict)  # by position, where they were asked for
    is_served: bool = False  # came over HTTP

    def token_after(self, position: int) -> int:
        return self.tokens[position + 1 - self.num_prompt]

    def has_token_after(self, position: int) -> bool:
        return position + 1 - self.num_prompt < len(self.tokens)


Answers = dict[Key, Answer]
Keep = Callable[[Answer, int, Row], None]  # what is done with a row once the token after it is known


def keep(answer: Answer, position: int, row: Row) -> None:
    answer.rows[position] = row


def mark(answer: Answer, position: int, row: Row) -> None:
    answer.marks[position] = Mark(log_probability(row, answer.token_after(position)), digest(row))


def log_probability(row: Row, token: int) -> float:
    wide = row.astype(np.float64)
    top = wide.max()
    return float(wide[token] - top - np.log(np.exp(wide - top).sum()))


def digest(row: Row) -> str:
    return hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest()
