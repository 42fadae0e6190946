"""Which captured step a step runs as: the number of its tokens, the tiling of its contexts, the number of its samples.

Always: what is captured for a key computes every step that has it. There are few keys, as each is a graph to capture:
tokens are padded to a rung of the ladder, samples to all of them or half, contexts to a power of two. Without torch.
"""

from itertools import pairwise
from typing import NamedTuple

from chairlift.core.limits import Limits
from chairlift.runner.cuda.attention.tiling import Tiling, choose_tiling

_LIKELY_CONTEXT = 4096  # longer ones are captured when they come
# Numbers of tokens. Beyond the last a step runs eagerly: launching costs little beside computing.
_PROMPTS_TOO = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512)
# More only where so many decode at once. Products are computed in tiles of rows anyway, so padding costs little.
_DECODES = range(576, 1025, 64)


def ladder(max_running: int) -> tuple[int, ...]:
    last = _PROMPTS_TOO[-1]
    return _PROMPTS_TOO + tuple(rung for rung in _DECODES if max_running > last and rung < max_running + 64)


class GraphKey(NamedTuple):
    num_tokens: int
    tiling: Tiling
    num_samples: int


class GraphKeys:
    def __init__(self, limits: Limits, has_groups: bool, exact: bool) -> None:
        """has_groups: several query heads share keys and values."""
        self._has_groups = has_groups
        self._exact = exact
        self._ladder = ladder(limits.max_running)
        self.max_tokens = self._ladder[-1]
        rungs = [rung for last, rung in pairwise((0, *self._ladder)) if last < limits.max_running]
        longest = _power_of_two(min(limits.max_model_len, _LIKELY_CONTEXT))
        contexts = [1 << power for power in range(longest.bit_length())]
        # Decodes of any number, short contexts first.
        self.likely = list(dict.fromkeys(self.of(rung, rung, context) for context in contexts for rung in rungs))

    def rung(self, count: int) -> int | None:
        """The number of tokens with padding; None: the step is too large to be captured."""
        return next((rung for rung in self._ladder if rung >= count), None)

    def tiling_of(self, num_rows: int, max_context: int) -> Tiling:
        """For other steps too: each tiling is a kernel to compile."""
        return choose_tiling(num_rows, _power_of_two(max_context), self._has_groups, self._exact)

    def of(self, rung: int, num_samples: int, max_context: int) -> GraphKey:
        is_wide = num_samples > rung // 2
        return GraphKey(rung, self.tiling_of(rung, max_context), rung if is_wide else max(1, rung // 2))


def _power_of_two(count: int) -> int:
    """The least that is not smaller."""
    return 1 << max(0, count - 1).bit_length()
