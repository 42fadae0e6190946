"""Which captured step a step runs as: the number of its tokens, of those that are computed row by row, of its tiles of
queries and of its samples, and the tiling of contexts.

Always: what is captured for a key computes every step that has it. Each key is a graph to capture, so there are few:
tokens are padded to a rung of the ladder, tiles to what as many tokens may have, all else to powers of two. Without
torch.
"""

from itertools import pairwise
from typing import NamedTuple

from chairlift.core.limits import Limits
from chairlift.runner.cuda.attention.tiling import Tiling, choose_tiling
from chairlift.runner.cuda.step.layout import QUERIES

_LIKELY_CONTEXT = 4096  # longer ones are captured when they come
_SMALL = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512)
# Products are computed in tiles of 128 rows or so, so padding costs little.
_MIDDLE, _LARGE = 64, 128  # between rungs
_MIDDLE_END = 1024
_FEWEST = 16  # rows, and samples, of a step with tiles
_MORE_TILES = 16  # than those of a single chunk with all tokens


def ladder(max_tokens: int) -> tuple[int, ...]:
    """Numbers of tokens; the last is the first that holds so many."""
    middle = range(_SMALL[-1] + _MIDDLE, _MIDDLE_END + 1, _MIDDLE)
    large = range(_MIDDLE_END + _LARGE, max_tokens + _LARGE, _LARGE)
    rungs = (*_SMALL, *middle, *large)
    return rungs[: next(index for index, rung in enumerate(rungs) if rung >= max_tokens) + 1]


def max_tiles(num_tokens: int) -> int:
    """Of a captured step with so many tokens."""
    return num_tokens // QUERIES + _MORE_TILES


class GraphKey(NamedTuple):
    num_tokens: int
    num_short: int  # rows in front that no tile answers
    tiling: Tiling
    num_tiles: int
    num_samples: int


class GraphKeys:
    def __init__(self, limits: Limits, has_groups: bool, exact: bool) -> None:
        """has_groups: several query heads share keys and values."""
        self._has_groups = has_groups
        self._exact = exact
        self._ladder = ladder(max(limits.max_step_tokens, limits.max_running))
        self.max_tokens = self._ladder[-1]
        self.max_samples = _power_of_two(max(limits.max_running, _FEWEST))
        rungs = [rung for last, rung in pairwise((0, *self._ladder)) if last < limits.max_running]
        longest = _power_of_two(min(limits.max_model_len, _LIKELY_CONTEXT))
        contexts = [1 << power for power in range(longest.bit_length())]
        # Decodes of any number, short contexts first.
        decodes = (
            GraphKey(rung, rung, self.tiling_of(rung, context), 0, rung) for context in contexts for rung in rungs
        )
        self.likely = list(dict.fromkeys(decodes))

    def tiling_of(self, num_rows: int, max_context: int) -> Tiling:
        """For other steps too: each tiling is a kernel to compile."""
        return choose_tiling(num_rows, _power_of_two(max_context), self._has_groups, self._exact)

    def of(
        self, num_tokens: int, num_short: int, max_context: int, num_tiles: int, num_samples: int
    ) -> GraphKey | None:
        """max_context: of the short rows. None: such a step is not captured."""
        rung = next((rung for rung in self._ladder if rung >= max(num_tokens, num_samples)), None)
        if rung is None or num_tiles > max_tiles(rung) or num_samples > self.max_samples:
            return None
        if not num_tiles:
            return GraphKey(rung, rung, self.tiling_of(rung, max_context), 0, min(rung, _power_of_two(num_samples)))
        rows = min(rung, _power_of_two(max(_FEWEST, num_short, num_samples)))
        return GraphKey(rung, rows, self.tiling_of(rows, max_context), max_tiles(rung), rows)


def _power_of_two(count: int) -> int:
    """The least that is not smaller."""
    return 1 << max(0, count - 1).bit_length()
