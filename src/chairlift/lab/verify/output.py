"""The output of one sample of a request, from the engine or a server: what runs are compared by."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from chairlift.core.ids import RequestId
from chairlift.telemetry.logit_files import Logits


class SampleKey(NamedTuple):
    case: int
    sample: int


class RowSummary(NamedTuple):
    """A row of logits that was not kept."""

    logprob: float  # of the token that was chosen from it
    digest: str  # of its bits; empty: unknown, as over HTTP


@dataclass(slots=True)
class SampleOutput:
    """rows[p] are the logits [vocab] that follow the token at position p, counted from 0 over prompt and output. Over
    HTTP they are log-probabilities instead: of the chosen token, then of the most probable ones."""

    num_prompt: int
    tokens: list[int] = field(default_factory=list)
    rows: dict[int, Logits] = field(default_factory=dict)
    summaries: dict[int, RowSummary] = field(default_factory=dict)  # by position
    is_served: bool = False  # came over HTTP

    def token_after(self, position: int) -> int:
        return self.tokens[position + 1 - self.num_prompt]

    def has_token_after(self, position: int) -> bool:
        return position + 1 - self.num_prompt < len(self.tokens)


Wanted = dict[RequestId, SampleKey]  # the requests to compare
Outputs = dict[SampleKey, SampleOutput]
Keep = Callable[[SampleOutput, int, Logits], None]  # stores a row once the token after it is known


def keep(output: SampleOutput, position: int, row: Logits) -> None:
    output.rows[position] = row


def summarise(output: SampleOutput, position: int, row: Logits) -> None:
    digest = hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest()
    logprob = log_softmax(row.astype(np.float64))[output.token_after(position)]
    output.summaries[position] = RowSummary(float(logprob), digest)


def log_softmax(row: Logits) -> Logits:
    shifted = row - row.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))
