"""What came of one sample of a request, wherever and in whatever company it was run: what runs are compared by."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.floating[Any]]


class SampleKey(NamedTuple):
    """Which sample of which case."""

    case: int
    sample: int


class RowSummary(NamedTuple):
    """What is left of a row that is not kept."""

    logprob: float  # of the token that was chosen from it
    digest: str  # of its bits; empty: they were not seen


@dataclass(slots=True)
class SampleOutput:
    """rows[p] are the logits [vocab] that follow the token at position p, counted from 0 over prompt and output. What
    comes over HTTP has log-probabilities in their place: of the chosen token, then of the likeliest ones."""

    num_prompt: int
    tokens: list[int] = field(default_factory=list)
    rows: dict[int, Logits] = field(default_factory=dict)
    summaries: dict[int, RowSummary] = field(default_factory=dict)  # by position, where they were asked for
    is_served: bool = False  # came over HTTP

    def token_after(self, position: int) -> int:
        return self.tokens[position + 1 - self.num_prompt]

    def has_token_after(self, position: int) -> bool:
        return position + 1 - self.num_prompt < len(self.tokens)


Outputs = dict[SampleKey, SampleOutput]
Keep = Callable[[SampleOutput, int, Logits], None]  # what is done with a row once the token after it is known


def keep(output: SampleOutput, position: int, row: Logits) -> None:
    output.rows[position] = row


def summarise(output: SampleOutput, position: int, row: Logits) -> None:
    output.summaries[position] = RowSummary(log_probability(row, output.token_after(position)), digest(row))


def log_probability(row: Logits, token: int) -> float:
    wide = row.astype(np.float64)
    top = wide.max()
    return float(wide[token] - top - np.log(np.exp(wide - top).sum()))


def digest(row: Logits) -> str:
    return hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest()
