"""The noise that chooses a token: a fixed number for each (seed, sample index, position).

No state: a seeded request draws the same numbers in any batch, in any order, on any device.
"""

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio


def uniform(seed: int, sample_index: int, position: int, attempt: int = 0) -> float:
    """A number in [0, 1) with 52 random bits; attempts count the numbers that one token needs."""
    state = _mixed(seed & _MASK)
    for key in (sample_index, position, attempt):
        state = _mixed(state ^ key)
    return float(state >> 12) * 2.0**-52


def _mixed(x: int) -> int:
    """The splitmix64 generator's step: neighbouring numbers come out unrelated."""
    x = (x + _STEP) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
