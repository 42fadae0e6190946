"""Shaping logits, choosing tokens and scoring them on the device: launched after a step's logits, never waited for.

raw logits -> penalties -> bias, forbidden stops -> draw -> tokens, in place of the likeliest
    |                                                         |
    +-- kept for rows that are scored ----------------------> scores
"""

import numpy as np
import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.asks import CHANGE_WIDTH, DRAW_WIDTH, PENALTY_WIDTH, StepAsks
from chairlift.runner.cuda.draw import draw_kernel
from chairlift.runner.cuda.history import change_kernel, count_kernel, penalise_kernel
from chairlift.runner.sampler import CANDIDATES, MAX_ATTEMPTS
from chairlift.runner.scores import Measure, measure
from chairlift.runner.to_device import to_device

_MAX_PENALISED = 64  # rows that are penalised at once: bounds the memory of their counts
_STRETCH = 1024  # tokens that one program counts
_CHANGES = 128  # that one program makes


class Sampling:
    def __init__(self, tables: Tensor, history: Tensor, last: Tensor, measure: Measure = measure) -> None:
        """history: int32 [num_blocks, block_size]; last: where the tokens go that the next step reads, one a row."""
        self._tables = tables
        self._history = history
        self._last = last
        self._measure = measure
        self._counts: Tensor | None = None  # all 0 between steps

    def choose(self, asks: StepAsks, logits: Tensor, tokens: Tensor) -> Tensor | None:
        """Overwrites logits [S, vocab], and where tokens [S] are not simply the likeliest, them and what is kept of
        them. -> what `measure` tells of those that are scored"""
        draws, penalties, changes, scored = self._send(asks)
        raw = logits.index_select(0, scored) if len(scored) else None
        if len(penalties):
            self._penalise(penalties, int(asks.penalties[:, 2].max()), logits)
        if len(changes):
            grid = (triton.cdiv(len(changes), _CHANGES),)
            change_kernel[grid](logits, changes, len(changes), logits.shape[1], WIDTH=CHANGE_WIDTH, BLOCK=_CHANGES)
        if len(draws):
            draw(logits, draws, tokens, self._last)
        if raw is None:
            return None
        return self._measure(raw, tokens.index_select(0, scored).clamp(min=0), max(asks.num_top))

    def _send(self, asks: StepAsks) -> list[Tensor]:
        """All numbers in one copy."""
        parts = (asks.draws, asks.penalties, asks.changes, asks.scored)
        words = to_device(np.concatenate([part.ravel() for part in parts]), self._last.device)
        pieces = words.split([part.size for part in parts])
        return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]

    def _penalise(self, penalties: Tensor, longest: int, logits: Tensor) -> None:
        vocab = logits.shape[1]
        if self._counts is None:
            self._counts = torch.zeros(_MAX_PENALISED, vocab, dtype=torch.int32, device=logits.device)
        said = (self._tables, self._history, self._counts, self._tables.shape[1], vocab)
        sizes = {"WIDTH": PENALTY_WIDTH, "SIZE": self._history.shape[1], "BLOCK": _STRETCH}
        for part in penalties.split(_MAX_PENALISED):
            grid = (len(part), triton.cdiv(longest, _STRETCH))
            count_kernel[grid](part, *said, **sizes)
            penalise_kernel[grid](logits, part, *said, **sizes)


def draw(logits: Tensor, draws: Tensor, tokens: Tensor, last: Tensor) -> None:
    """draws as asks.py tells: a token for each, into tokens and last."""
    draw_kernel[(len(draws),)](
        logits, draws, tokens, last, logits.shape[1],
        WIDTH=DRAW_WIDTH, CANDIDATES=CANDIDATES, ATTEMPTS=MAX_ATTEMPTS, PIVOTS=8, TILE=4096, STAGES=1, num_warps=32,
    )  # fmt: skip
