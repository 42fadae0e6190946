"""The sampling table: the sampling parameters of requests, one row each, read by every sampler (torch, C, Triton).

A request is packed once (`pack`); a step selects the rows of its samples (`select`) and adds the row of the logits and
the position of the token. Biases and stop tokens, of any length, are kept beside the rows.

Always: numbers are as exact as in the request; a sampler with fewer digits rounds them itself. Needs no torch.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chairlift.core.ids import RequestId
from chairlift.core.params import FILTERS
from chairlift.core.request import Request
from chairlift.runner.sampling.noise import stream

# Filters of draw.c and cuda/sampling/draw.py; samples with any other are drawn by the torch sampler.
FAST = ("top_k", "top_p", "min_p")
# Lower temperatures are as good as greedy, and dividing by them overflows float32.
MIN_TEMPERATURE = 1e-6
MAX_ATTEMPTS = 8  # to draw a token that the filters keep
_MOST = 2**31 - 1  # beyond any vocabulary

# Bits of `kind`.
IS_CHOSEN = 1  # the token is not the argmax of the model's logits
IS_FILTERED = 2
IS_SLOW = 4  # has a filter that is not FAST
IS_PENALISED = 8
IS_BIASED = 16
IS_HELD = 32  # may not stop before a minimum length
IS_SCORED = 64
IS_MASKED = 128  # held to a shape, or to some tokens

Samples = NDArray[np.void]  # of SAMPLE
SAMPLE = np.dtype(
    [
        # draw.c reads the fields up to min_p by order and size.
        ("row", np.int64),  # of the logits
        ("position", np.int64),  # of the token; selects the noise, with the stream
        ("stream", np.uint64),
        ("temperature", np.float64),  # 0: greedy
        *((name, np.int64 if isinstance(neutral, int) else np.float64) for name, neutral in FILTERS.items()),
        ("kind", np.int32), ("num_prompt", np.int32), ("min_tokens", np.int32),
        ("num_top", np.int32),  # most likely tokens of a score
        ("repetition", np.float64), ("presence", np.float64), ("frequency", np.float64),
    ]
)  # fmt: skip
Changes = NDArray[np.void]  # of CHANGE
CHANGE = np.dtype([("token", np.int64), ("added", np.float64)])  # to a logit


class SamplingTable:
    def __init__(self, num_rows: int) -> None:
        self.rows: Samples = np.zeros(num_rows, SAMPLE)
        self._biases: dict[int, Changes] = {}
        self._stops: dict[int, Changes] = {}

    def pack(self, index: int, request: Request) -> None:
        params = request.params
        self._biases[index] = _changes(tuple(params.logit_bias), tuple(params.logit_bias.values()))
        self._stops[index] = _changes(tuple(sorted(request.stop_ids)), (-np.inf,) * len(request.stop_ids))
        self.rows[index] = (
            0, 0, stream(request.seed, request.sample_index),
            0.0 if params.is_greedy else max(params.temperature, MIN_TEMPERATURE),
            *(min(getattr(params, name), _MOST) for name in FILTERS),
            _kind(request), len(request.prompt), params.min_tokens, params.logprobs or 0,
            params.repetition_penalty, params.presence_penalty, params.frequency_penalty,
        )  # fmt: skip

    def copy(self, index: int, other: "SamplingTable", source: int) -> None:
        """Takes over a packed row."""
        self.rows[index] = other.rows[source]
        self._biases[index], self._stops[index] = other._biases[source], other._stops[source]

    def select(self, indices: NDArray[np.integer[Any]], positions: Sequence[int] | NDArray[np.int32]) -> Samples:
        """The samples of a step, in the order of its logits."""
        samples = self.rows[indices]
        samples["row"] = np.arange(len(samples))
        samples["position"] = positions
        return samples

    def changes(self, samples: Samples, indices: NDArray[np.integer[Any]]) -> list[tuple[int, Changes]]:
        """Changes to logits after penalties, in this order, as (row, changes): biases, and stop tokens before the
        minimum length."""
        kinds = samples["kind"]
        if not (kinds & (IS_BIASED | IS_HELD)).any():
            return []
        is_early = samples["position"] - samples["num_prompt"] < samples["min_tokens"]
        changes = [(i, self._biases[int(indices[i])]) for i in np.flatnonzero(kinds & IS_BIASED).tolist()]
        held = np.flatnonzero((kinds & IS_HELD > 0) & is_early)
        return changes + [(i, self._stops[int(indices[i])]) for i in held.tolist()]


def _kind(request: Request) -> int:
    params = request.params
    is_held = bool(params.min_tokens and request.stop_ids)
    is_shaped = is_held or bool(params.logit_bias) or params.has_penalties or params.is_masked
    kind = IS_CHOSEN * (is_shaped or not params.is_greedy) + IS_PENALISED * params.has_penalties
    kind += IS_BIASED * bool(params.logit_bias) + IS_HELD * is_held + IS_SCORED * (params.logprobs is not None)
    kind += IS_MASKED * params.is_masked
    is_slow = any(getattr(params, name) != neutral for name, neutral in FILTERS.items() if name not in FAST)
    return kind if params.is_greedy else kind + IS_FILTERED * params.is_filtered + IS_SLOW * is_slow


@lru_cache(maxsize=256)
def _changes(tokens: tuple[int, ...], added: tuple[float, ...]) -> Changes:
    """Made once for all samples of a request; read-only."""
    changes = np.empty(len(tokens), CHANGE)
    changes["token"], changes["added"] = tokens, added
    changes.flags.writeable = False
    return changes


class BatchTable:
    """The rows of the last step's samples, for a runner without rows of its own; continuing requests are not packed
    again."""

    def __init__(self) -> None:
        self._table = SamplingTable(0)
        self._indices = np.arange(0)
        self._ids: Sequence[RequestId] = ()
        self._has_params = False  # rows other than plain argmaxes
        self._step = 0

    def of(
        self, step: int, requests: Sequence[Request], positions: Sequence[int]
    ) -> tuple[Samples, list[tuple[int, Changes]]]:
        """The samples of a step and the changes to their logits; a request may have several. A step number that does
        not grow is another scheduler's, which may reuse ids."""
        known = self._ids if step > self._step else ()
        self._step = step
        ids = [request.id for request in requests]
        if known != ids:
            self._pack(requests, dict(zip(known, self._indices.tolist(), strict=True)) if known else {})
            self._ids = ids
        samples = self._table.select(self._indices, positions) if self._has_params else self._table.rows[self._indices]
        return samples, self._table.changes(samples, self._indices) if self._has_params else []

    def _pack(self, requests: Sequence[Request], known: dict[RequestId, int]) -> None:
        """known: rows of the old table."""
        own = {request.id: request for request in requests}
        table, indices = SamplingTable(len(own)), {request: index for index, request in enumerate(own)}
        for request, index in indices.items():
            if request in known:
                table.copy(index, self._table, known[request])
            else:
                table.pack(index, own[request])
        self._table, self._has_params = table, bool(table.rows["kind"].any())
        self._indices = np.array([indices[request.id] for request in requests])
