"""How far two runs of the same requests are apart: bits, errors, likeliest tokens, divergence, tokens and texts.

Always: a row is compared only where both runs had chosen the same tokens up to it; after that they are rows of
different texts, and are counted as such. A row that only one run has differs from what is not there.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from chairlift.verify.output import Logits, Outputs, SampleOutput

_NO_ROW: Logits = np.empty(0, np.float32)


@dataclass(slots=True)
class Deviation:
    """Of pairs of rows, the first of each being what is expected."""

    num_rows: int = 0
    num_differing: int = 0  # in at least one bit
    num_apart: int = 0  # rows of texts that had parted before
    max_error: float = 0.0  # of a value
    max_spreads: float = 0.0  # the same in standard deviations of the expected row
    sum_error: float = 0.0  # of the mean error of each row
    num_whole: int = 0  # rows that have every token of the vocabulary
    num_same_top: int = 0  # of these, those with the same largest value
    sum_kl: float = 0.0  # of each row, in nats
    max_kl: float = 0.0
    num_tokens: int = 0
    num_other_tokens: int = 0
    num_texts: int = 0
    num_other_texts: int = 0
    first: str = ""  # where the first difference is

    @property
    def mean_error(self) -> float:
        return self.sum_error / max(1, self.num_rows)

    @property
    def mean_kl(self) -> float:
        return self.sum_kl / max(1, self.num_rows)

    @property
    def same_top(self) -> float | None:
        return self.num_same_top / self.num_whole if self.num_whole else None

    def add_row(self, expected: Logits, found: Logits, is_vocab: bool = True) -> None:
        self.num_rows += 1
        self.num_whole += is_vocab
        if expected.dtype == found.dtype and expected.tobytes() == found.tobytes():
            self.num_same_top += is_vocab
            return
        self.num_differing += 1
        if expected.shape != found.shape:
            self.max_error = self.max_spreads = self.max_kl = float("inf")
            return
        a, b = expected.astype(np.float64), found.astype(np.float64)
        with np.errstate(invalid="ignore"):
            errors = np.abs(a - b)
        errors[a == b] = 0.0  # infinities of one sign
        errors[np.isnan(errors)] = np.inf
        worst = float(errors.max())
        self.max_error = max(self.max_error, worst)
        self.sum_error += float(errors.mean())
        if not is_vocab:
            return
        spread = float(a.std())
        self.max_spreads = max(self.max_spreads, worst / spread if spread > 0 else worst)
        self.num_same_top += int(a.argmax() == b.argmax())
        kl = _divergence(a, b)
        self.sum_kl += kl
        self.max_kl = max(self.max_kl, kl)

    def add_output(self, expected: SampleOutput, found: SampleOutput, name: str = "") -> None:
        a, b = expected.tokens, found.tokens
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        self.num_texts += 1
        self.num_tokens += max(len(a), len(b))
        self.num_other_tokens += sum(x != y for x, y in zip(a, b, strict=False)) + abs(len(a) - len(b))
        self.num_other_texts += a != b
        last = expected.num_prompt - 1 + same  # the row in which they part is the last of the same text
        for position in sorted(expected.rows.keys() | found.rows.keys()):
            pair = expected.rows.get(position, _NO_ROW), found.rows.get(position, _NO_ROW)
            has_both = all(row is not _NO_ROW for row in pair)
            if position < last or (position == last and has_both):
                before = self.num_differing
                self.add_row(*pair, not found.is_served)
                if self.num_differing > before:
                    self.first = self.first or f"{name}, position {position}"
            else:
                self.num_apart += has_both

    def add_outputs(self, expected: Outputs, found: Outputs) -> None:
        for key in expected:
            if key in found:
                self.add_output(expected[key], found[key], f"prompt {key.case + 1}, sample {key.sample}")

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.num_rows,
            "rows_differing": self.num_differing,
            "rows_of_other_texts": self.num_apart,
            "max_error": _finite(self.max_error),
            "max_error_in_spreads": _finite(self.max_spreads),
            "mean_error": _finite(self.mean_error),
            "top_1_agreement": self.same_top,
            "mean_kl": _finite(self.mean_kl),
            "max_kl": _finite(self.max_kl),
            "tokens": self.num_tokens,
            "tokens_differing": self.num_other_tokens,
            "texts": self.num_texts,
            "texts_differing": self.num_other_texts,
            "first_difference": self.first,
        }


def _divergence(expected: Logits, found: Logits) -> float:
    """Kullback-Leibler, from what is expected to what was found."""
    with np.errstate(invalid="ignore"):
        a, b = _log_softmax(expected), _log_softmax(found)
        terms = np.exp(a) * (a - b)
    kl = float(np.where(np.exp(a) == 0.0, 0.0, terms).sum())
    return max(0.0, kl) if kl == kl else float("inf")


def _log_softmax(row: Logits) -> Logits:
    shifted = row - row.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _finite(value: float) -> float | str:
    """JSON has no infinity."""
    return value if np.isfinite(value) else "infinite"
