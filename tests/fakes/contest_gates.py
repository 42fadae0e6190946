"""The three public releases of the contest's accuracy comparison, written from what they do to two folders.

Each returns how many pairs of files are close; all that is in the folders must be.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

ATOL = 5e-3


def _load(path: Path) -> Any:
    return np.load(path, allow_pickle=True)


def first(base: Path, new: Path) -> int:
    """Pairs in the order of the folders; elements are tensors."""
    num_close = 0
    for before, after in zip(os.listdir(base), os.listdir(new), strict=True):
        if before.split("_")[1:] == after.split("_")[1:]:
            values, others = _load(base / before), _load(new / after)
            rows = (values[0][0], others[0][0]) if values.ndim == 3 else (values[0], others[0])
            left, right = ([tensor.asnumpy() for tensor in row] for row in rows)
            num_close += np.allclose(left, right, atol=ATOL)
    return num_close


def second(base: Path, new: Path) -> int:
    """Pairs sorted names; arrays are converted on both sides."""
    num_close = 0
    for before, after in zip(sorted(os.listdir(base)), sorted(os.listdir(new)), strict=True):
        if before.split("_")[1:] == after.split("_")[1:]:
            left, right = _load(base / before).astype(np.float32), _load(new / after).astype(np.float32)
            num_close += np.allclose(left, right, atol=ATOL)
    return num_close


def third(base: Path, new: Path) -> int:
    """Pairs equal sequences and positions by time; only the base is converted."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(os.listdir(new)):
        _, sequence, position = name.split("_")
        groups.setdefault((sequence, position), []).append(name)
    num_close = 0
    for name in sorted(os.listdir(base)):
        _, sequence, position = name.split("_")
        after = groups[sequence, position].pop(0)
        np.isfinite(_load(new / after))  # as numpy did then, and refuses objects
        num_close += np.allclose(_load(new / after), _load(base / name).astype(np.float32), atol=ATOL)
    return num_close
