"""A cost model from timed steps: least squares on the relative error, with no cost below zero.

The table of the matrix products is fitted as rises from one row count to the next, so it never falls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from chairlift.sim.cost import CostModel, Shape

Array = NDArray[np.float64]

_MAX_TURNS = 8


@dataclass(frozen=True, slots=True)
class Fit:
    cost: CostModel
    errors: tuple[float, ...]  # predicted / measured - 1, of every step

    @property
    def mean_error(self) -> float:
        return float(np.mean(np.abs(self.errors)))

    @property
    def max_error(self) -> float:
        return float(np.max(np.abs(self.errors)))


def fit(shapes: Sequence[Shape], seconds: Sequence[float]) -> Fit:
    measured = np.array(seconds)
    is_read = np.zeros(len(shapes), dtype=bool)  # prompt attention that is bound by reading, not by computing
    for _ in range(_MAX_TURNS):
        cost = _fit(shapes, measured, is_read)
        reads = np.array([cost.kv_token_s * s.prompt_context > cost.pair_s * s.prompt_pairs for s in shapes])
        if (reads == is_read).all():
            break
        is_read = reads
    predicted = np.array([cost.seconds(shape) for shape in shapes])
    return Fit(cost, tuple(float(error) for error in predicted / measured - 1.0))


def _fit(shapes: Sequence[Shape], measured: Array, is_read: NDArray[np.bool_]) -> CostModel:
    rows, chunks, samples, decodes, prompts, pairs = np.array([shape[:6] for shape in shapes], dtype=float).T
    nodes = np.unique(rows)
    rises = [np.ones(len(rows))]
    rises += [np.clip((rows - low) / (high - low), 0.0, 1.0) for low, high in pairwise(nodes)]
    columns = np.column_stack([*rises, samples, chunks, decodes + prompts * is_read, pairs * ~is_read])
    found = non_negative_least_squares(columns / measured[:, None], np.ones(len(measured)))
    table, (sample_s, chunk_s, kv_token_s, pair_s) = np.cumsum(found[: len(nodes)]), found[len(nodes) :]
    return CostModel(
        linear=tuple((int(node), float(value)) for node, value in zip(nodes, table, strict=True)),
        sample_s=float(sample_s),
        chunk_s=float(chunk_s),
        kv_token_s=float(kv_token_s),
        pair_s=float(pair_s),
    )


def non_negative_least_squares(columns: Array, target: Array) -> Array:
    """The x >= 0 for which columns @ x comes nearest to the target: the active-set method of Lawson and Hanson."""
    scale = np.linalg.norm(columns, axis=0)
    scale[scale == 0.0] = 1.0
    a = columns / scale
    x = np.zeros(a.shape[1])
    is_free = np.zeros(a.shape[1], dtype=bool)
    for _ in range(10 * a.shape[1]):
        slope = a.T @ (target - a @ x)
        slope[is_free] = -np.inf
        if is_free.all() or slope.max() <= 1e-10:
            break
        is_free[int(np.argmax(slope))] = True
        while True:
            trial = np.zeros_like(x)
            trial[is_free] = np.linalg.lstsq(a[:, is_free], target, rcond=None)[0]
            if not (trial[is_free] <= 0.0).any():
                break
            # Goes as far as the first that would turn negative, and holds that one at zero.
            falling = is_free & (trial <= 0.0)
            share = float(np.min(x[falling] / np.maximum(x[falling] - trial[falling], 1e-300)))
            x = x + share * (trial - x)
            is_free &= x > 1e-14
            x[~is_free] = 0.0
        x = trial
    return np.asarray(x / scale)
