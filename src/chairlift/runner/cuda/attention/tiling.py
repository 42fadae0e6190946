"""How the contexts of a step are split for attention row by row, chosen by measuring on an H200.

Few rows of short contexts do not fill the device, so they are split finely. Others do, but all wait for a long context
that is walked in one go; joining costs nothing where there is one stretch. Where every head has its own keys, many
small programs (eight keys at a time, one warp) keep more loads in flight than few large ones. With `exact`, stretches
are as long everywhere, as sums depend on it, and a single split means that one program walks them all.
"""

from typing import NamedTuple

_FEW, _SOME, _MANY, _VERY_MANY = 16, 64, 128, 512  # rows
_LONG, _VERY_LONG, _LONGEST = 1024, 4096, 8192  # keys
_FEW_KEYS = _FEW * _LONG  # of all rows
EXACT_SPLIT, EXACT_TILE = 64, 32  # keys
LARGE_HEAD = 256  # numbers of a head; wider ones take more warps, and fewer keys at a time
MAX_PARTS = 1 << 16  # that wait to be joined, over all rows: bounds their memory when one context of many is long


class Tiling(NamedTuple):
    split: int  # keys that one program walks
    num_splits: int  # that the longest context needs
    tile: int  # keys at a time
    warps: int


def choose_tiling(num_rows: int, max_context: int, has_groups: bool, exact: bool = False) -> Tiling:
    """has_groups: several query heads share keys and values."""
    if exact:
        is_split = num_rows <= _FEW or (has_groups and num_rows <= 4 * _FEW and max_context > _LONG)
        num_splits = max(1, -(-max_context // EXACT_SPLIT)) if is_split else 1
        return Tiling(EXACT_SPLIT, num_splits, EXACT_TILE, 2 if num_splits > 1 else 1)
    if has_groups:
        split, tile, warps = _grouped(num_rows, max_context)
    elif num_rows <= _FEW:
        split, tile, warps = 64, 32, 1
    else:
        split, tile, warps = 128, 8, 1
        if num_rows >= _MANY and max_context > _VERY_LONG:  # parts take memory
            split = 1024
        elif num_rows >= _VERY_MANY or (num_rows >= _MANY and max_context > _LONG):
            split = 256
    while num_rows * -(-max_context // split) > MAX_PARTS and split < max_context:
        split *= 2
    return Tiling(split, max(1, -(-max_context // split)), tile, warps)


def _grouped(num_rows: int, max_context: int) -> tuple[int, int, int]:
    if num_rows <= _FEW and num_rows * max_context <= _FEW_KEYS:
        return 64, 64, 4
    if max_context > _LONG:
        return (512 if max_context <= _LONGEST else 1024), 128, 4
    return (1024, 64, 2) if num_rows >= _SOME else (512, 32, 1)
