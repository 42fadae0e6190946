"""Shaping logits, choosing tokens and scoring them on the device, after a step's logits. Only tokens with a filter that
has no kernel are waited for: the torch sampler draws them.

raw logits -> penalties -> bias, forbidden stops -> mask -> draw -> tokens, in place of the argmax
    |                                                                 |
    +-- kept for rows that are scored ------------------------------> scores

Always: memory is taken before logits are changed or after all tokens are chosen, so that where it runs out there can be
a second try. Only the torch sampler takes some in between.
"""

from functools import partial

import numpy as np
import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.sampling.draw import draw_kernel
from chairlift.runner.cuda.sampling.mask import mask_kernel
from chairlift.runner.cuda.sampling.penalties import change_kernel, count_kernel, penalise_kernel
from chairlift.runner.cuda.sampling.rows import CHANGE_WIDTH, DRAW_WIDTH, MAX_PENALISED, PENALTY_WIDTH, SamplingRows
from chairlift.runner.cuda.step.columns import Words
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.machine.to_device import to_device
from chairlift.runner.memory.freed import with_room
from chairlift.runner.sampling.sampler import CANDIDATES, choose
from chairlift.runner.sampling.scores import Measure, measure
from chairlift.runner.sampling.table import MAX_ATTEMPTS, SAMPLE
from chairlift.runner.torch.ops import TorchOps

_STRETCH = 1024  # tokens that one program counts
_CHANGES = 128  # that one program makes
_MASKED = 4096  # logits that one program looks at


class CudaSampler:
    def __init__(self, tables: Tensor, cached_tokens: Tensor, last: Tensor, measure: Measure = measure) -> None:
        """cached_tokens: int32 [num_blocks, block_size]; last: sampled tokens for the next step, one a row."""
        self._tables = tables
        self._cached_tokens = cached_tokens
        self._last = last
        self._measure = measure
        self._counts: Tensor | None = None  # all 0 between steps

    def choose(self, step: StepInput, logits: Tensor, tokens: Tensor, masks: Words | None = None) -> Tensor | None:
        """Overwrites logits [S, vocab], and tokens [S], here and in `last`, where they are not the argmax.
        -> what `measure` gives for those that are scored"""
        asked = step.sampling
        if not (len(asked.draws) or len(asked.slow) or len(asked.scored)):
            return None
        draws, penalties, changes, scored, structured = with_room(lambda: self._send(asked))
        words = None if masks is None else with_room(partial(to_device, masks, logits.device))
        raw = with_room(lambda: logits.index_select(0, scored)) if len(scored) else None
        if len(penalties):
            self._penalise(penalties, int(asked.penalties[:, 2].max()), logits)
        if len(changes):
            grid = (triton.cdiv(len(changes), _CHANGES),)
            change_kernel[grid](logits, changes, len(changes), logits.shape[1], WIDTH=CHANGE_WIDTH, BLOCK=_CHANGES)
        if words is not None:
            mask_rows(logits, structured, words)
        if len(draws):
            draw(logits, draws, tokens, self._last)
        if len(asked.slow):
            self._draw_slowly(step, logits, tokens)
        if raw is None:
            return None
        score, num_top = partial(self._measure, raw), int(asked.num_top.max())
        return with_room(lambda: score(tokens.index_select(0, scored).clamp(min=0), num_top))

    def _draw_slowly(self, step: StepInput, logits: Tensor, tokens: Tensor) -> None:
        """One by one: on a GPU torch may add up in another order beside other rows."""
        for sample in step.sampling.slow.view(SAMPLE)[:, 0]:
            row = int(sample["row"])
            drawn, bad = choose(logits[row : row + 1], sample[None], TorchOps())
            tokens[row] = -1 if bad else drawn[0]
            self._last[int(step.columns.sample_rows[row])] = 0 if bad else drawn[0]

    def _send(self, asked: SamplingRows) -> list[Tensor]:
        """All numbers in one copy."""
        parts = (asked.draws, asked.penalties, asked.changes, asked.scored, asked.structured)
        words = to_device(np.concatenate([part.ravel() for part in parts]), self._last.device)
        pieces = words.split([part.size for part in parts])
        return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]

    def _penalise(self, penalties: Tensor, longest: int, logits: Tensor) -> None:
        vocab = logits.shape[1]
        if self._counts is None:
            zeros = partial(torch.zeros, MAX_PENALISED, vocab, dtype=torch.int32, device=logits.device)
            self._counts = with_room(zeros)
        context = (self._tables, self._cached_tokens, self._counts, self._tables.shape[1], vocab)
        sizes = {"WIDTH": PENALTY_WIDTH, "SIZE": self._cached_tokens.shape[1], "BLOCK": _STRETCH}
        for part in penalties.split(MAX_PENALISED):
            grid = (len(part), triton.cdiv(longest, _STRETCH))
            count_kernel[grid](part, *context, **sizes)
            penalise_kernel[grid](logits, part, *context, **sizes)


def mask_rows(logits: Tensor, rows: Tensor, words: Tensor) -> None:
    """words: int32 [R, vocab / 32], which tokens may come in rows [R]."""
    grid = (len(rows), triton.cdiv(logits.shape[1], _MASKED))
    mask_kernel[grid](logits, rows, words, logits.shape[1], words.shape[1], TILE=_MASKED)


def draw(logits: Tensor, draws: Tensor, tokens: Tensor, last: Tensor) -> None:
    """draws: see rows.py; a token for each, into tokens and last."""
    draw_kernel[(len(draws),)](
        logits, draws, tokens, last, logits.shape[1],
        WIDTH=DRAW_WIDTH, CANDIDATES=CANDIDATES, ATTEMPTS=MAX_ATTEMPTS, PIVOTS=8, TILE=4096, STAGES=1, num_warps=32,
    )  # fmt: skip
