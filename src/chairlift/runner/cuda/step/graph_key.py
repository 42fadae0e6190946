"""Which captured step a step runs as: the number of its tokens, how contexts are cut, the number of its samples.

Always: what is captured for a key computes every step that has it. There are few keys, as each is a graph to capture:
tokens are padded to a rung of the ladder, samples to all of them or half, contexts to a power of two. Without torch.
"""

from typing import NamedTuple

from chairlift.core.limits import Limits
from chairlift.runner.cuda.attention.tiling import Tiling, choose_tiling
from chairlift.runner.cuda.step.ladder import ladder

_LIKELY_CONTEXT = 4096  # longer ones are captured when they come


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
        self.likely = self._likely(limits.max_running, limits.max_model_len)

    @property
    def max_tokens(self) -> int:
        return self._ladder[-1]

    def rung(self, count: int) -> int | None:
        """How many tokens the step has when it is captured; None for one that is too large."""
        return next((rung for rung in self._ladder if rung >= count), None)

    def tiling_of(self, num_rows: int, max_context: int) -> Tiling:
        """For other steps too: each cut is a kernel to compile."""
        return choose_tiling(num_rows, _power_of_two(max_context), self._has_groups, self._exact)

    def of(self, rung: int, num_samples: int, max_context: int) -> GraphKey:
        is_wide = num_samples > rung // 2
        return GraphKey(rung, self.tiling_of(rung, max_context), rung if is_wide else max(1, rung // 2))

    def _likely(self, max_decodes: int, max_model_len: int) -> list[GraphKey]:
        """Decodes of any number, short contexts first."""
        rungs = [rung for rung, last in zip(self._ladder, (0, *self._ladder), strict=False) if last < max_decodes]
        longest = _power_of_two(min(max_model_len, _LIKELY_CONTEXT))
        contexts = [1 << power for power in range(longest.bit_length())]
        return list(dict.fromkeys(self.of(rung, rung, context) for context in contexts for rung in rungs))


def _power_of_two(count: int) -> int:
    """The least that is not smaller."""
    return 1 << max(0, count - 1).bit_length()
