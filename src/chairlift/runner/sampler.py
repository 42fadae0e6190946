"""Chooses one token per row of logits, each by its own request's parameters.

Always: a row's token depends on that row and its request alone, so batches do not change it. Rows without special
wishes take none of the special paths: greedy rows are one argmax, whatever the others want.

    logits -> bias, minimum length, penalties -> greedy: the largest
                                              -> else temperature -> top-k -> top-p -> min-p -> inverse of the sums
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chairlift.core.request import Request
from chairlift.runner.noise import uniform
from chairlift.runner.ops import Ops

# Filters look at this many most likely tokens first; a row whose filters reach further is sorted whole.
_CANDIDATES = 256
# Below this a temperature is greedy in all but name, and dividing by it leaves the range of float32.
_MIN_TEMPERATURE = 1e-6


class Row(NamedTuple):
    """One token to choose: tokens[:num_tokens] are the prompt and the output so far."""

    request: Request
    tokens: Sequence[int]
    num_tokens: int


class Chosen(NamedTuple):
    tokens: list[int]
    is_bad: list[bool]  # the row's logits were not numbers; its token means nothing


def sample(logits: Tensor, rows: Sequence[Row], ops: Ops) -> Chosen:
    """One token for each row of logits [S, vocab]; may overwrite logits."""
    for index, row in enumerate(rows):
        if _is_shaped(row):
            shape_logits(logits[index], row)
    tokens = ops.argmax(logits)
    chosen: list[int] = tokens.tolist()
    # A NaN gives no largest at all; an infinite one leaves nothing to draw from.
    is_bad = (~logits.gather(-1, tokens.clamp(min=0)[:, None]).isfinite().flatten() | (tokens < 0)).tolist()
    plain: list[int] = []
    filtered: list[int] = []
    for index, row in enumerate(rows):
        params = row.request.params
        if not params.is_greedy and not is_bad[index]:
            needs_filter = params.top_k or params.top_p < 1.0 or params.min_p
            (filtered if needs_filter else plain).append(index)
    for indices, draw in ((plain, _draw_plain), (filtered, _draw_filtered)):
        if indices:
            drawn = draw(logits if len(indices) == len(rows) else logits[indices], [rows[i] for i in indices])
            for index, token in zip(indices, drawn, strict=True):
                chosen[index] = token
    return Chosen(chosen, is_bad)


def _is_shaped(row: Row) -> bool:
    params = row.request.params
    return bool(params.min_tokens or params.logit_bias or params.has_penalties)


def shape_logits(logits: Tensor, row: Row) -> None:
    """Adds the bias, forbids stopping before the minimum length and applies penalties to one row [vocab], in place."""
    request, params = row.request, row.request.params
    num_prompt = len(request.prompt)
    if params.has_penalties:
        _penalise(logits, row, num_prompt)
    if params.logit_bias:
        ids = torch.tensor(list(params.logit_bias), device=logits.device)
        logits[ids] += torch.tensor(list(params.logit_bias.values()), dtype=logits.dtype, device=logits.device)
    if row.num_tokens - num_prompt < params.min_tokens and request.stop_ids:
        logits[torch.tensor(sorted(request.stop_ids), device=logits.device)] = -torch.inf


def _penalise(logits: Tensor, row: Row, num_prompt: int) -> None:
    params = row.request.params
    tokens = np.asarray(row.tokens[: row.num_tokens], dtype=np.int64)
    if params.repetition_penalty != 1.0:  # over prompt and output
        seen = torch.from_numpy(np.unique(tokens)).to(logits.device)
        values = logits[seen]
        penalty = params.repetition_penalty
        logits[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if params.presence_penalty or params.frequency_penalty:  # over the output
        ids, counts = np.unique(tokens[num_prompt:], return_counts=True)
        loss = params.presence_penalty + params.frequency_penalty * counts
        logits[torch.from_numpy(ids).to(logits.device)] -= torch.from_numpy(loss).to(logits)


def _draw_plain(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    return _invert(_tempered(logits, rows).softmax(dim=-1), rows).tolist()


def _tempered(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Divides by the temperature, the largest moved to 0 first so that a tiny temperature leaves it finite."""
    temperature = [max(row.request.params.temperature, _MIN_TEMPERATURE) for row in rows]
    return (logits - logits.amax(dim=-1, keepdim=True)) / _column(temperature, logits)


def _draw_filtered(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    scaled = _tempered(logits, rows)
    vocab = scaled.shape[-1]
    if vocab <= _CANDIDATES:
        return _draw_sorted(scaled, *_sorted(scaled), rows, rest=False)[0]
    values, ids = scaled.topk(_CANDIDATES, dim=-1)
    order = ids.argsort(dim=-1)
    values, again = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(-1, order).gather(-1, again)
    tokens, is_short = _draw_sorted(scaled, values, ids, rows, rest=True)
    short = [index for index, is_one in enumerate(is_short) if is_one]
    if short:
        scaled = scaled[short]
        drawn, _ = _draw_sorted(scaled, *_sorted(scaled), [rows[index] for index in short], rest=False)
        for index, token in zip(short, drawn, strict=True):
            tokens[index] = token
    return tokens


def _sorted(scaled: Tensor) -> tuple[Tensor, Tensor]:
    """Most likely first, equal ones by id."""
    values, ids = scaled.sort(dim=-1, descending=True, stable=True)
    return values, ids


def _draw_sorted(
    scaled: Tensor, values: Tensor, ids: Tensor, rows: Sequence[Row], rest: bool
) -> tuple[list[int], list[bool]]:
    """Filters and draws among candidates [R, C] sorted most likely first. Where `rest` says that tokens beyond the
    candidates exist, the second list tells which rows would need them."""
    params = [row.request.params for row in rows]
    count = values.shape[-1]
    vocab = scaled.shape[-1]
    top_k = _column([p.top_k or vocab for p in params], values)
    is_limited = (top_k < vocab).flatten()
    top_p = _column([p.top_p for p in params], values)
    min_p = _column([p.min_p for p in params], values)
    # Softmax over the whole row: sums along a row must not depend on how many rows there are.
    shares = scaled.softmax(dim=-1).gather(-1, ids)  # [R, C]
    place = torch.arange(count, device=values.device)
    sums = shares.double().cumsum(dim=-1)  # [R, C]
    # What top-p takes its part of: the k most likely, or all.
    last = (top_k.long() - 1).clamp(max=count - 1)
    whole = torch.where(is_limited[:, None], sums.gather(-1, last), 1.0)
    is_kept = place < top_k
    is_kept &= (sums - shares < top_p * whole) | (place == 0) | (top_p >= 1.0)  # the crossing token stays
    is_kept &= values.exp() >= min_p  # the largest is 0
    # Equal values at the edge may be any of several tokens, so a row is safe only when its own edge lies inside.
    is_short = rest & ((is_kept & (values == values[:, -1:])).any(dim=-1) | (top_k > count).flatten() & is_limited)
    drawn = _invert(torch.where(is_kept, shares, 0.0), rows)
    return ids.gather(-1, drawn[:, None]).flatten().tolist(), is_short.tolist()


def _invert(shares: Tensor, rows: Sequence[Row]) -> Tensor:
    """The first index whose running sum exceeds the row's noise times the whole. -> [R]"""
    sums = shares.cumsum(dim=-1, dtype=torch.float64)
    noise = [uniform(row.request.seed, row.request.sample_index, row.num_tokens) for row in rows]
    return torch.searchsorted(sums, _column(noise, sums) * sums[:, -1:], right=True).flatten()


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).to(like)[:, None]
