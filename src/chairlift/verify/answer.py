"""What came of one sample of a request, wherever and in whatever company it was run: what runs are compared by."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.floating[Any]]


class Key(NamedTuple):
    """Which sample of which case."""

    case: int
    sample: int


@dataclass(slots=True)
class Answer:
    """rows[p] are the logits [vocab] that follow the token at position p, counted from 0 over prompt and output. What
    comes over HTTP has log-probabilities in their place: of the chosen token, then of the likeliest ones."""

    num_prompt: int
    tokens: list[int] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)
    is_served: bool = False  # came over HTTP

    def log_probabilities(self) -> list[float]:
        """Of each token."""
        rows = [self.rows[self.num_prompt - 1 + i] for i in range(len(self.tokens))]
        if self.is_served:
            return [float(row[0]) for row in rows]
        return [log_probability(row, token) for row, token in zip(rows, self.tokens, strict=True)]


Answers = dict[Key, Answer]


def log_probability(row: Row, token: int) -> float:
    wide = row.astype(np.float64)
    top = wide.max()
    return float(wide[token] - top - np.log(np.exp(wide - top).sum()))
