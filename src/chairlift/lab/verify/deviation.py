"""How far two runs of the same requests deviate: bits, errors, argmax, divergence, tokens and texts.

Always: rows are compared up to the first token that differs; later ones are of different texts and only counted. A row
that only one run has counts as differing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from chairlift.lab.verify.output import Outputs, SampleOutput, log_softmax
from chairlift.telemetry.logit_files import Logits

_NO_ROW: Logits = np.empty(0, np.float32)


@dataclass(slots=True)
class Deviation:
    """Of pairs of rows, the expected one first."""

    num_rows: int = 0
    num_differing: int = 0  # in at least one bit
    num_apart: int = 0  # rows after the first token that differs
    max_error: float = 0.0  # of a value
    max_spreads: float = 0.0  # the same in standard deviations of the expected row
    sum_error: float = 0.0  # of the mean error of each row
    num_whole: int = 0  # rows over the whole vocabulary
    num_same_top: int = 0  # of these, those with the same argmax
    sum_kl: float = 0.0  # of each row, in nats
    max_kl: float = 0.0
    num_tokens: int = 0
    num_other_tokens: int = 0
    num_texts: int = 0
    num_other_texts: int = 0
    first: str = ""  # difference

    @property
    def mean_error(self) -> float:
        return self.sum_error / max(1, self.num_rows)

    @property
    def mean_kl(self) -> float:
        return self.sum_kl / max(1, self.num_rows)

    @property
    def has_difference(self) -> bool:
        return self.num_differing > 0 or self.num_other_texts > 0

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
        last = expected.num_prompt - 1 + same  # the row of the first token that differs still follows the same text
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

    @classmethod
    def of(cls, expected: Outputs, found: Outputs) -> "Deviation":
        deviation = cls()
        for key in expected:
            if key in found:
                deviation.add_output(expected[key], found[key], f"prompt {key.case + 1}, sample {key.sample}")
        return deviation

    def add(self, other: "Deviation") -> None:
        for name in self.__dataclass_fields__:
            mine, its = getattr(self, name), getattr(other, name)
            if name == "first":
                self.first = mine or its
            else:
                setattr(self, name, max(mine, its) if name.startswith("max_") else mine + its)

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
    """Kullback-Leibler, from the expected to the found row."""
    with np.errstate(invalid="ignore"):
        a, b = log_softmax(expected), log_softmax(found)
        terms = np.exp(a) * (a - b)
    kl = float(np.where(np.exp(a) == 0.0, 0.0, terms).sum())
    return max(0.0, kl) if kl == kl else float("inf")


def _finite(value: float) -> float | str:
    """JSON has no infinity."""
    return value if np.isfinite(value) else "infinite"
