"""A cost model from timed steps: non-negative least squares on the relative error.

The table of the matrix products is fitted as rises from one row count to the next, so it never falls. Steps with errors
above a little count less the larger these are, so that one outlier does not bend the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from chairlift.lab.sim.cost import CostModel, StepShape, padded

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_TURNS = 16
_LITTLE = 0.03  # relative error up to which a step counts in full


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


def fit(
    shapes: Sequence[StepShape], seconds: Sequence[float], max_row_pairs: int = 0, rungs: tuple[int, ...] = ()
) -> Fit:
    """max_row_pairs: as the shapes were made; where it is 0, every step is launched alike. rungs: rows that the runner
    pads to."""
    measured = np.array(seconds)
    has_prompt = np.array([shape.prompt_pairs > 0 for shape in shapes])
    can_wait = has_prompt & (max_row_pairs > 0)  # for the host, if there is nothing else to wait for
    is_read = np.zeros(len(shapes), dtype=bool)  # prompt attention that is bound by reading, not by computing
    is_launch = can_wait & (measured <= 1.5 * np.min(measured[can_wait], initial=np.inf))
    weights = np.ones(len(shapes))
    for _ in range(_TURNS):
        cost = _fit(shapes, measured, weights, is_read, is_launch, rungs)
        is_read = np.array([cost.kv_token_s * s.prompt_context > cost.pair_s * s.prompt_pairs for s in shapes])
        unbound = replace(cost, launch_s=0.0)
        is_launch = can_wait & np.array([unbound.seconds(shape) < cost.launch_s for shape in shapes])
        errors = np.array([cost.seconds(shape) for shape in shapes]) / measured - 1.0
        weights = np.sqrt(_LITTLE / np.maximum(np.abs(errors), _LITTLE))
    return Fit(replace(cost, max_row_pairs=max_row_pairs), tuple(float(error) for error in errors))


def _fit(
    shapes: Sequence[StepShape],
    measured: Array,
    weights: Array,
    is_read: Flags,
    is_launch: Flags,
    rungs: tuple[int, ...],
) -> CostModel:
    _, chunks, samples, decodes, prompts, pairs = np.array([shape[:6] for shape in shapes], dtype=float).T
    rows = np.array([padded(shape.num_rows, rungs) for shape in shapes], dtype=float)
    has_prompt = np.array([shape.prompt_pairs > 0 for shape in shapes], dtype=float)
    nodes = np.unique(rows)
    rises = [np.ones(len(rows))]
    rises += [np.clip((rows - low) / (high - low), 0.0, 1.0) for low, high in pairwise(nodes)]
    device = np.column_stack([*rises, samples, chunks, decodes + prompts * is_read, pairs * ~is_read, has_prompt])
    columns = np.column_stack([device * ~is_launch[:, None], is_launch])
    found = non_negative_least_squares(columns * (weights / measured)[:, None], weights)
    table, rates = np.cumsum(found[: len(nodes)]), found[len(nodes) :]
    sample_s, chunk_s, kv_token_s, pair_s, prompt_s, launch_s = (float(rate) for rate in rates)
    return CostModel(
        linear=tuple((int(node), float(value)) for node, value in zip(nodes, table, strict=True)),
        sample_s=sample_s,
        chunk_s=chunk_s,
        kv_token_s=kv_token_s,
        pair_s=pair_s,
        prompt_s=prompt_s,
        launch_s=launch_s,
        rungs=rungs,
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
