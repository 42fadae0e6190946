"""How long steps take lately: so long whatever they compute, and so long for each prompt token.

A straight line through the last steps, older ones counting less: seconds by prompt tokens. What decodes cost is part of
the fixed time, which follows them. Until steps with different numbers of prompt tokens were seen, a token takes 0.
"""

from collections.abc import Sequence

_MEMORY = 64  # steps that count


class StepPace:
    def __init__(self) -> None:
        self._count = 0
        self._tokens = self._seconds = 0.0  # means
        self._spread = self._shared = 0.0  # variance of the tokens; covariance with the seconds

    def learn(self, num_tokens: int, seconds: float) -> None:
        """A step with so many prompt tokens took so long, from its plan or the end of the step before."""
        self._count = min(self._count + 1, _MEMORY)
        part = 1.0 / self._count
        more, longer = num_tokens - self._tokens, seconds - self._seconds
        self._tokens += part * more
        self._seconds += part * longer
        self._spread = (1.0 - part) * (self._spread + part * more * more)
        self._shared = (1.0 - part) * (self._shared + part * more * longer)

    def skip(self, begin: float, times: Sequence[float]) -> None:
        """Steps without prompt tokens ended at these times, the first begun at `begin`: `learn` for each of them."""
        num_young = min(_MEMORY - self._count, len(times))
        for end in times[:num_young]:
            self.learn(0, end - begin)
            begin = end
        # The same sums as those of `learn`, written out for speed; from here on each step counts as much.
        part, rest = 1.0 / _MEMORY, 1.0 - 1.0 / _MEMORY
        tokens, mean, spread, shared = self._tokens, self._seconds, self._spread, self._shared
        for end in times[num_young:]:
            longer = end - begin - mean
            begin = end
            weighted = part * tokens
            mean += part * longer
            spread = rest * (spread + weighted * tokens)
            shared = rest * (shared - weighted * longer)
            tokens -= weighted
        self._tokens, self._seconds, self._spread, self._shared = tokens, mean, spread, shared

    @property
    def token_s(self) -> float:
        return max(0.0, self._shared / self._spread) if self._spread > 0.0 else 0.0

    @property
    def fixed_s(self) -> float:
        return max(0.0, self._seconds - self.token_s * self._tokens)
