"""Chooses one token per row of logits, each by its own request's parameters.

Always: a row's token depends on that row and its request alone, so batches do not change it. Rows without special
wishes take none of the special paths: greedy rows are one argmax, whatever the others want.

    logits -> bias, minimum length, penalties -> greedy: the largest
                                              -> else temperature -> top-k -> top-p -> min-p -> inverse of the sums
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chairlift.core.request import Request
from chairlift.runner.noise import uniform
from chairlift.runner.ops import Drawing, Draws, Ops

# Filters look at this many most likely tokens first; rows whose filters reach further take another way.
CANDIDATES = 256
_GROUP = 16  # values of which only the largest is looked at first, when candidates are sought
MAX_ATTEMPTS = 8
# Below this a temperature is greedy in all but name, and dividing by it leaves the range of float32.
MIN_TEMPERATURE = 1e-6
_SEED_BITS = 2**64 - 1
_MAX_TOP_K = 2**31  # beyond any vocabulary


class Row(NamedTuple):
    """One token to choose: tokens[:num_tokens] are the prompt and the output so far."""

    request: Request
    tokens: Sequence[int]
    num_tokens: int


Draw = Callable[[Tensor, Sequence[Row]], list[int]]


class Chosen(NamedTuple):
    tokens: list[int]
    is_bad: list[bool]  # the row's logits were not numbers; its token means nothing


def sample(logits: Tensor, rows: Sequence[Row], ops: Ops) -> Chosen:
    """One token for each row of logits [S, vocab]; may overwrite logits."""
    for index, row in enumerate(rows):
        if row.request.params.is_shaped:
            shape_logits(logits[index], row)
    tokens = ops.argmax(logits)
    chosen: list[int] = tokens.tolist()
    # A NaN gives no largest at all; an infinite one leaves nothing to draw from.
    is_bad = (~logits.gather(-1, tokens.clamp(min=0)[:, None]).isfinite().flatten() | (tokens < 0)).tolist()
    drawn = [i for i, row in enumerate(rows) if not row.request.params.is_greedy and not is_bad[i]]
    if drawn and isinstance(ops, Drawing) and logits.dtype is torch.float32:
        for index, token in zip(drawn, ops.draw(logits, _draws(rows, drawn)), strict=True):
            chosen[index] = token
        drawn = [index for index in drawn if chosen[index] < 0]
    filtered = [index for index in drawn if rows[index].request.params.is_filtered]
    plain = [index for index in drawn if not rows[index].request.params.is_filtered]
    _redraw(chosen, plain, logits, rows, _draw_plain)
    _redraw(chosen, filtered, logits, rows, _draw_filtered)
    return Chosen(chosen, is_bad)


def _draws(rows: Sequence[Row], indices: list[int]) -> Draws:
    asked = [(rows[i], rows[i].request, rows[i].request.params) for i in indices]
    return Draws(
        rows=np.array(indices, np.int64),
        temperature=np.array([max(p.temperature, MIN_TEMPERATURE) for _, _, p in asked], np.float32),
        top_k=np.array([min(p.top_k, _MAX_TOP_K) for _, _, p in asked], np.int64),
        top_p=np.array([p.top_p for _, _, p in asked], np.float32),
        min_p=np.array([p.min_p for _, _, p in asked], np.float32),
        seed=np.array([request.seed & _SEED_BITS for _, request, _ in asked], np.uint64),
        sample_index=np.array([request.sample_index for _, request, _ in asked], np.int64),
        position=np.array([row.num_tokens for row, _, _ in asked], np.int64),
    )


def shape_logits(logits: Tensor, row: Row) -> None:
    """Adds the bias, forbids stopping before the minimum length and applies penalties to one row [vocab], in place."""
    request, params = row.request, row.request.params
    num_prompt = len(request.prompt)
    if params.has_penalties:
        _penalise(logits, row, num_prompt)
    if params.logit_bias:
        bias = params.logit_bias
        ids, added = _biases(tuple(bias), tuple(bias.values()), logits.dtype, logits.device)
        logits[ids] += added
    if row.num_tokens - num_prompt < params.min_tokens and request.stop_ids:
        logits[torch.tensor(sorted(request.stop_ids), device=logits.device)] = -torch.inf


@lru_cache(maxsize=256)
def _biases(
    ids: tuple[int, ...], added: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Made once for all samples and steps of a request; nobody may write to them."""
    return torch.tensor(ids, device=device), torch.tensor(added, dtype=dtype, device=device)


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
    return _invert(_temper(logits, rows).softmax(dim=-1), rows).tolist()


def _temper(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Divides by the temperature, in place; the largest is moved to 0 first, so that a tiny one leaves it finite."""
    temperature = [max(row.request.params.temperature, MIN_TEMPERATURE) for row in rows]
    logits -= logits.amax(dim=-1, keepdim=True)
    logits /= _column(temperature, logits)
    return logits


def _draw_filtered(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    scaled = _temper(logits, rows)
    if scaled.shape[-1] <= CANDIDATES:
        return _draw_whole(scaled, rows)
    values, ids = _largest(scaled, CANDIDATES)
    order = ids.argsort(dim=-1)
    values, again = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(-1, order).gather(-1, again)
    tokens, is_short = _draw_sorted(scaled, values, ids, rows, rest=True)
    # How many a top-k keeps cannot be told from one token, so only the other filters may be tried by drawing.
    for draw, has_top_k in ((_draw_whole, True), (_draw_wide, False)):
        short = [i for i, row in enumerate(rows) if is_short[i] and bool(row.request.params.top_k) is has_top_k]
        _redraw(tokens, short, scaled, rows, draw)
    return tokens


def _redraw(tokens: list[int], indices: list[int], scaled: Tensor, rows: Sequence[Row], draw: Draw) -> None:
    """Replaces the tokens of some rows."""
    if indices:
        part = scaled if len(indices) == len(rows) else scaled[indices]
        for index, token in zip(indices, draw(part, [rows[i] for i in indices]), strict=True):
            tokens[index] = token


def _draw_wide(scaled: Tensor, rows: Sequence[Row], attempt: int = 1) -> list[int]:
    """For filters that keep a large part of the vocabulary: draws from all of it until a token is one they keep.
    That takes a pass or two over the row where sorting takes many; a row that has no luck is sorted after all."""
    if attempt > MAX_ATTEMPTS:
        return _draw_whole(scaled, rows)
    shares = scaled.softmax(dim=-1)
    drawn = _invert(shares, rows, attempt)[:, None]
    value = scaled.gather(-1, drawn)
    place = torch.arange(scaled.shape[-1], device=scaled.device)
    is_behind = (scaled < value) | ((scaled == value) & (place >= drawn))
    # A running sum, unlike a plain one, adds in the same order however many rows there are.
    ahead = shares.masked_fill_(is_behind, 0.0).cumsum(dim=-1)[:, -1:]
    top_p = _column([row.request.params.top_p for row in rows], scaled)
    is_kept = ((ahead < top_p) | (top_p >= 1.0)) & (value >= _least(rows, scaled))
    tokens: list[int] = drawn.flatten().tolist()
    again = [index for index, is_one in enumerate(is_kept.flatten().tolist()) if not is_one]
    _redraw(tokens, again, scaled, rows, partial(_draw_wide, attempt=attempt + 1))
    return tokens


def _largest(scaled: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest values of each row and their ids; of several equal to the least of them, any."""
    num_groups = scaled.shape[-1] // _GROUP
    if num_groups < count:
        values, ids = scaled.topk(count, dim=-1)
        return values, ids
    # Value i is in group i % num_groups. The largest values lie in the groups with the largest best values.
    best = scaled[:, : num_groups * _GROUP].unflatten(-1, (_GROUP, num_groups)).amax(dim=1)
    groups = best.topk(count, dim=-1).indices
    steps = torch.arange(0, num_groups * _GROUP, num_groups, device=scaled.device)
    tail = torch.arange(num_groups * _GROUP, scaled.shape[-1], device=scaled.device)
    members = torch.cat(((groups[:, None] + steps[:, None]).flatten(1), tail.expand(len(scaled), -1)), dim=1)
    values, at = scaled.gather(-1, members).topk(count, dim=-1)
    return values, members.gather(-1, at)


def _draw_whole(scaled: Tensor, rows: Sequence[Row]) -> list[int]:
    return _draw_sorted(scaled, *_sorted(scaled), rows, rest=False)[0]


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
    least = _least(rows, values)
    # Softmax over the whole row: sums along a row must not depend on how many rows there are.
    shares = scaled.softmax(dim=-1).gather(-1, ids)  # [R, C]
    place = torch.arange(count, device=values.device)
    sums = shares.double().cumsum(dim=-1)  # [R, C]
    # What top-p takes its part of: the k most likely, or all.
    last = (top_k.long() - 1).clamp(max=count - 1)
    whole = torch.where(is_limited[:, None], sums.gather(-1, last), 1.0)
    is_kept = place < top_k
    is_kept &= (sums - shares < top_p * whole) | (place == 0) | (top_p >= 1.0)  # the crossing token stays
    is_kept &= values >= least  # the largest is 0
    # Equal values at the edge may be any of several tokens, so a row is safe only when its own edge lies inside.
    is_short = rest & ((is_kept & (values == values[:, -1:])).any(dim=-1) | (top_k > count).flatten() & is_limited)
    drawn = _invert(torch.where(is_kept, shares, 0.0), rows)
    return ids.gather(-1, drawn[:, None]).flatten().tolist(), is_short.tolist()


def _invert(shares: Tensor, rows: Sequence[Row], attempt: int = 0) -> Tensor:
    """The first index whose running sum exceeds the row's noise times the whole. -> [R]"""
    sums = shares.cumsum(dim=-1)
    noise = [uniform(row.request.seed, row.request.sample_index, row.num_tokens, attempt) for row in rows]
    whole = sums[:, -1:]
    # Rounding may lift the product to the whole, which no sum exceeds.
    mark = torch.minimum(_column(noise, sums) * whole, whole.nextafter(torch.zeros_like(whole)))
    return torch.searchsorted(sums, mark, right=True).flatten()


def _least(rows: Sequence[Row], like: Tensor) -> Tensor:
    """The logarithms of min-p: values are compared with them, and not the exponentials of values with min-p, for those
    may have another last bit beside other rows."""
    shares = [row.request.params.min_p for row in rows]
    return _column([math.log(share) if share else -math.inf for share in shares], like)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).to(like)[:, None]
