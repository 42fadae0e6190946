"""Chooses one token per row of logits, each by its own row of the sampling table.

Always: a row's token depends on that row and its request alone, not on the batch. Greedy rows cost one argmax.

    logits -> penalties, bias, minimum length -> tokens that a shape forbids
           -> greedy: the largest
           -> else temperature -> top-k -> top-p -> min-p -> inverse of the sums
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chairlift.runner.ops import Drawing, Ops
from chairlift.runner.sampling.noise import uniforms
from chairlift.runner.sampling.table import IS_FILTERED, IS_PENALISED, IS_SLOW, MAX_ATTEMPTS, Changes, Samples

# Filters look at this many most likely tokens first; rows whose filters keep more are drawn again.
CANDIDATES = 256
_GROUP = 16  # values represented by their largest in the search for candidates

Draw = Callable[[Tensor, Samples], list[int]]


class Chosen(NamedTuple):
    tokens: list[int]
    bad: list[int]  # rows whose logits were not numbers; their tokens are invalid


def shape_logits(
    logits: Tensor, samples: Samples, texts: Sequence[Sequence[int]], changes: Sequence[tuple[int, Changes]]
) -> None:
    """Penalties, then changes, to logits [S, vocab] in place; texts: at least the tokens before each sample."""
    for i, kind in enumerate(samples["kind"].tolist()):
        if kind & IS_PENALISED:
            _penalise(logits[i], samples[i], texts[i])
    if changes:
        rows = np.repeat([i for i, _ in changes], [len(part) for _, part in changes])
        parts = np.concatenate([part for _, part in changes])
        indices = tuple(torch.from_numpy(ids).to(logits.device) for ids in (rows, parts["token"]))
        # Of two changes to one logit at least one is infinite, so their order does not matter.
        logits.index_put_(indices, torch.from_numpy(parts["added"]).to(logits), accumulate=True)


def forbid(logits: Tensor, rows: Sequence[int], words: NDArray[np.int32]) -> None:
    """Leaves rows of logits [S, vocab] only the tokens whose bits are set in words [R, W], in place."""
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=logits.shape[1], bitorder="little")
    is_forbidden = torch.from_numpy(bits == 0).to(logits.device)
    for row, forbidden in zip(rows, is_forbidden, strict=True):
        logits[row].masked_fill_(forbidden, -math.inf)


def _penalise(logits: Tensor, sample: np.void, text: Sequence[int]) -> None:
    tokens = np.asarray(text[: sample["position"]], dtype=np.int64)
    repetition, presence, frequency = (float(sample[name]) for name in ("repetition", "presence", "frequency"))
    if repetition != 1.0:  # over prompt and output
        seen = torch.from_numpy(tokens).to(logits.device)  # a token seen twice gets the same value twice
        values = logits[seen]
        logits[seen] = torch.where(values > 0, values / repetition, values * repetition)
    if presence or frequency:  # over the output
        ids, counts = np.unique(tokens[sample["num_prompt"] :], return_counts=True)
        loss = presence + frequency * counts
        logits[torch.from_numpy(ids).to(logits.device)] -= torch.from_numpy(loss).to(logits)


def choose(logits: Tensor, samples: Samples, ops: Ops) -> Chosen:
    """One token for each row of logits [S, vocab]; may overwrite logits."""
    tokens = ops.argmax(logits)
    chosen: list[int] = tokens.tolist()
    # A row with a NaN has no argmax; one with an infinite logit no distribution.
    is_bad = (~logits.gather(-1, tokens.clamp(min=0)[:, None]).isfinite().flatten() | (tokens < 0)).tolist()
    bad = [i for i, is_one in enumerate(is_bad) if is_one]
    drawn = [i for i, temperature in enumerate(samples["temperature"].tolist()) if temperature and not is_bad[i]]
    fast = [i for i in drawn if not samples["kind"][i] & IS_SLOW]
    if fast and isinstance(ops, Drawing) and logits.dtype is torch.float32:
        for i, token in zip(fast, ops.draw(logits, samples[fast]), strict=True):
            chosen[i] = token
        drawn = [i for i in drawn if samples["kind"][i] & IS_SLOW]
    for draw, kind in ((_draw_plain, 0), (_draw_filtered, IS_FILTERED)):
        _redraw(chosen, [i for i in drawn if samples["kind"][i] & IS_FILTERED == kind], logits, samples, draw)
    return Chosen(chosen, bad)


def _draw_plain(logits: Tensor, samples: Samples) -> list[int]:
    return _invert(_temper(logits, samples).softmax(dim=-1), samples).tolist()


def _temper(logits: Tensor, samples: Samples) -> Tensor:
    """Divides by the temperature, in place; the largest becomes 0 first and stays finite at any temperature."""
    logits -= logits.amax(dim=-1, keepdim=True)
    logits /= _column(samples["temperature"], logits)
    return logits


def _draw_filtered(logits: Tensor, samples: Samples) -> list[int]:
    scaled = _temper(logits, samples)
    if scaled.shape[-1] <= CANDIDATES:
        return _draw_whole(scaled, samples)
    values, ids = _largest(scaled, CANDIDATES)
    order = ids.argsort(dim=-1)
    values, again = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(-1, order).gather(-1, again)
    tokens, is_short = _draw_sorted(scaled, values, ids, samples, rest=True)
    # Whether top-k keeps a token needs all others, so only the other filters can be tried by drawing.
    for draw, has_top_k in ((_draw_whole, True), (_draw_wide, False)):
        short = [i for i, top_k in enumerate(samples["top_k"].tolist()) if is_short[i] and bool(top_k) is has_top_k]
        _redraw(tokens, short, scaled, samples, draw)
    return tokens


def _redraw(tokens: list[int], indices: list[int], scaled: Tensor, samples: Samples, draw: Draw) -> None:
    """Replaces the tokens of some rows."""
    if indices:
        part = scaled if len(indices) == len(samples) else scaled[indices]
        for index, token in zip(indices, draw(part, samples[indices]), strict=True):
            tokens[index] = token


def _draw_wide(scaled: Tensor, samples: Samples) -> list[int]:
    """For filters that keep much of the vocabulary: draws from all of it until they keep the token, which takes a pass
    or two over the row where sorting takes many; after MAX_ATTEMPTS the row is sorted."""
    tokens, left = [0] * len(samples), [*range(len(samples))]
    for attempt in range(1, MAX_ATTEMPTS + 1):
        part = scaled if len(left) == len(samples) else scaled[left]
        drawn, is_kept = _try_wide(part, samples[left], attempt)
        for index, token in zip(left, drawn, strict=True):
            tokens[index] = token
        left = [index for index, is_one in zip(left, is_kept, strict=True) if not is_one]
        if not left:
            return tokens
    _redraw(tokens, left, scaled, samples, _draw_whole)
    return tokens


def _try_wide(scaled: Tensor, samples: Samples, attempt: int) -> tuple[list[int], list[bool]]:
    """Tokens of whole rows, and whether filters keep them."""
    shares = scaled.softmax(dim=-1)
    drawn = _invert(shares, samples, attempt)[:, None]
    value = scaled.gather(-1, drawn)
    ids = torch.arange(scaled.shape[-1], device=scaled.device)
    is_behind = (scaled < value) | ((scaled == value) & (ids >= drawn))
    # A running sum adds in the same order for any number of rows; a plain sum does not.
    ahead = shares.masked_fill_(is_behind, 0.0).cumsum(dim=-1)[:, -1:]
    top_p = _column(samples["top_p"], scaled)
    is_kept = ((ahead < top_p) | (top_p >= 1.0)) & (value >= _least(samples, scaled))
    return drawn.flatten().tolist(), is_kept.flatten().tolist()


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


def _draw_whole(scaled: Tensor, samples: Samples) -> list[int]:
    """Most likely first, equal ones by id."""
    values, ids = scaled.sort(dim=-1, descending=True, stable=True)
    return _draw_sorted(scaled, values, ids, samples, rest=False)[0]


def _draw_sorted(
    scaled: Tensor, values: Tensor, ids: Tensor, samples: Samples, rest: bool
) -> tuple[list[int], list[bool]]:
    """Filters and draws among candidates [R, C] sorted most likely first. With `rest` there are tokens beyond them; the
    second list: rows that need those."""
    count = values.shape[-1]
    vocab = scaled.shape[-1]
    top_k = _column(np.where(samples["top_k"], samples["top_k"], vocab), values)
    is_limited = (top_k < vocab).flatten()
    top_p = _column(samples["top_p"], values)
    least = _least(samples, values)
    # Softmax over the whole row: its sums do not depend on the number of rows.
    shares = scaled.softmax(dim=-1).gather(-1, ids)  # [R, C]
    rank = torch.arange(count, device=values.device)
    sums = shares.double().cumsum(dim=-1)  # [R, C]
    # Top-p is a share of the k most likely, or of all.
    last = (top_k.long() - 1).clamp(max=count - 1)
    whole = torch.where(is_limited[:, None], sums.gather(-1, last), 1.0)
    is_kept = rank < top_k
    is_kept &= (sums - shares < top_p * whole) | (rank == 0) | (top_p >= 1.0)  # the crossing token stays
    is_kept &= values >= least  # the largest is 0
    # The last candidate's equals may lie outside: a row that keeps one of them needs the rest.
    is_short = rest & ((is_kept & (values == values[:, -1:])).any(dim=-1) | (top_k > count).flatten() & is_limited)
    drawn = _invert(torch.where(is_kept, shares, 0.0), samples)
    return ids.gather(-1, drawn[:, None]).flatten().tolist(), is_short.tolist()


def _invert(shares: Tensor, samples: Samples, attempt: int = 0) -> Tensor:
    """The first index whose running sum exceeds the row's noise times the whole. -> [R]"""
    sums = shares.cumsum(dim=-1)
    noise = uniforms(samples["stream"], samples["position"], range(attempt, attempt + 1))[:, 0]
    whole = sums[:, -1:]
    # Rounding may lift the product to the whole, which no sum exceeds.
    mark = torch.minimum(_column(noise, sums) * whole, whole.nextafter(torch.zeros_like(whole)))
    return torch.searchsorted(sums, mark, right=True).flatten()


def _least(samples: Samples, like: Tensor) -> Tensor:
    """The logarithms of min-p: exponentials of values may have another last bit beside other rows."""
    shares: list[float] = samples["min_p"].tolist()
    return _column(np.array([math.log(share) if share else -math.inf for share in shares]), like)


def _column(values: NDArray[np.float64] | NDArray[np.int64], like: Tensor) -> Tensor:
    return torch.from_numpy(np.array(values, np.float64)).to(like)[:, None]
