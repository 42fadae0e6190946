"""What requests ask of their tokens, as numbers that travel with a step; plain numpy, so that it is tested anywhere.

A request's numbers are noted when it gets a row of the device, and a step picks those of its samples by their rows: no
Python runs for each sample. Numbers that are not integers travel as their bits.

draws      row of the logits, row that keeps the token, top-k, then float32: temperature (0: the likeliest), top-p,
           min-p, noise for the first attempt and for those that may follow
penalties  row of the logits, row of the block tables, tokens so far, of those in the prompt, then float32: repetition,
           presence, frequency
changes    row of the logits, token id, then float32: what is added to its logit
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from chairlift.core.request import Request
from chairlift.runner.cuda.layout import Layout
from chairlift.runner.noise import stream, uniforms
from chairlift.runner.sampler import MAX_ATTEMPTS, MIN_TEMPERATURE

DRAW_WIDTH = 6 + 1 + MAX_ATTEMPTS
PENALTY_WIDTH = 7
CHANGE_WIDTH = 3

_IS_CHOSEN, _IS_PENALISED, _IS_BIASED, _IS_HELD, _IS_SCORED = 1, 2, 4, 8, 16
_ASK = np.dtype(
    [
        ("kind", np.int32), ("top_k", np.int32), ("num_prompt", np.int32), ("min_tokens", np.int32),
        ("num_top", np.int32), ("temperature", np.float32), ("top_p", np.float32), ("min_p", np.float32),
        ("repetition", np.float32), ("presence", np.float32), ("frequency", np.float32), ("stream", np.uint64),
    ]
)  # fmt: skip

Words = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class StepAsks:
    """Of a step in which some sample is not simply the likeliest token, or is scored."""

    draws: Words  # [D, DRAW_WIDTH]
    penalties: Words  # [P, PENALTY_WIDTH]
    changes: Words  # [C, CHANGE_WIDTH]
    scored: Words  # [R]: rows of the logits
    num_top: list[int]  # rivals that each of these tells of


class Asks:
    def __init__(self, num_rows: int) -> None:
        self._asks = np.zeros(num_rows, _ASK)
        # Logits to be changed always, and those of stop tokens: [N, 2] ids and float32.
        self._biases: dict[int, Words] = {}
        self._stops: dict[int, Words] = {}

    def of(self, layout: Layout) -> StepAsks | None:
        """None where every token is simply the likeliest."""
        for row, request in layout.arrivals:
            self._note(row, request)
        kinds = self._asks["kind"][layout.sample_rows]
        if not kinds.any():
            return None
        asks = self._asks[layout.sample_rows]
        lengths = layout.positions[layout.logit_rows] + 1  # of the texts that the tokens are chosen for
        scored = np.flatnonzero(kinds & _IS_SCORED).astype(np.int32)
        return StepAsks(
            _draws(asks, lengths, layout.sample_rows),
            _penalties(asks, lengths, layout.table_rows[layout.logit_rows]),
            self._changes(asks, lengths, layout.sample_rows),
            scored,
            asks["num_top"][scored].tolist(),
        )

    def _note(self, row: int, request: Request) -> None:
        params = request.params
        self._biases[row] = _changes_of(tuple(params.logit_bias), tuple(params.logit_bias.values()))
        self._stops[row] = _changes_of(tuple(sorted(request.stop_ids)), (-np.inf,) * len(request.stop_ids))
        is_held = bool(params.min_tokens and request.stop_ids)
        is_shaped = is_held or params.logit_bias or params.has_penalties
        kind = _IS_CHOSEN * bool(is_shaped or not params.is_greedy) + _IS_PENALISED * params.has_penalties
        kind += _IS_BIASED * bool(params.logit_bias) + _IS_HELD * is_held + _IS_SCORED * (params.logprobs is not None)
        temperature = 0.0 if params.is_greedy else max(params.temperature, MIN_TEMPERATURE)
        self._asks[row] = (
            kind, min(params.top_k, 2**31 - 1), len(request.prompt), params.min_tokens, params.logprobs or 0,
            temperature, params.top_p, params.min_p,
            params.repetition_penalty, params.presence_penalty, params.frequency_penalty,
            stream(request.seed, request.sample_index),
        )  # fmt: skip

    def _changes(self, asks: NDArray[np.void], lengths: Words, rows: Words) -> Words:
        kinds = asks["kind"]
        is_early = (lengths - asks["num_prompt"] < asks["min_tokens"]) & (kinds & _IS_HELD > 0)
        parts = [(i, self._biases[rows[i]]) for i in np.flatnonzero(kinds & _IS_BIASED).tolist()]
        parts += [(i, self._stops[rows[i]]) for i in np.flatnonzero(is_early).tolist()]
        changes = np.empty((sum(len(part) for _, part in parts), CHANGE_WIDTH), np.int32)
        low = 0
        for i, part in parts:
            changes[low : low + len(part), 0] = i
            changes[low : low + len(part), 1:] = part
            low += len(part)
        return changes


@lru_cache(maxsize=256)
def _changes_of(ids: tuple[int, ...], added: tuple[float, ...]) -> Words:
    """Made once for all samples of a request."""
    words = np.empty((len(ids), 2), np.int32)
    words[:, 0] = ids
    words[:, 1].view(np.float32)[:] = added
    words.flags.writeable = False
    return words


def _draws(asks: NDArray[np.void], lengths: Words, rows: Words) -> Words:
    (which,) = np.nonzero(asks["kind"] & _IS_CHOSEN)
    asks = asks[which]
    draws = np.empty((len(which), DRAW_WIDTH), np.int32)
    draws[:, :3] = np.stack((which, rows[which], asks["top_k"]), axis=1)
    numbers = draws[:, 3:].view(np.float32)
    numbers[:, :3] = np.stack((asks["temperature"], asks["top_p"], asks["min_p"]), axis=1)
    numbers[:, 3:] = uniforms(asks["stream"], lengths[which].astype(np.uint64), 1 + MAX_ATTEMPTS)
    return draws


def _penalties(asks: NDArray[np.void], lengths: Words, table_rows: Words) -> Words:
    (which,) = np.nonzero(asks["kind"] & _IS_PENALISED)
    asks = asks[which]
    penalties = np.empty((len(which), PENALTY_WIDTH), np.int32)
    penalties[:, :4] = np.stack((which, table_rows[which], lengths[which], asks["num_prompt"]), axis=1)
    numbers = penalties[:, 4:].view(np.float32)
    numbers[:] = np.stack((asks["repetition"], asks["presence"], asks["frequency"]), axis=1)
    return penalties
