"""How many tokens a step may compute, for how long, and how many of them are a prompt's."""

from collections.abc import Sequence

_GROWTH = 256


class StepBudget:
    """How many tokens a step may compute: all that the limits allow, fewer for a while after one did not fit.

    A step that did not fit halves its own number of tokens; each committed step adds a 256th, so that a lasting
    lack of memory is met seldom.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self.num_tokens = max_tokens  # at least 1

    @property
    def is_whole(self) -> bool:
        return self.num_tokens == self._max_tokens

    def shrink(self, num_tokens: int) -> None:
        """A step of so many tokens, more than one, did not fit."""
        self.num_tokens = min(self.num_tokens, num_tokens // 2)

    def grow(self) -> None:
        """A step did."""
        if self.num_tokens < self._max_tokens:
            self.num_tokens = min(self._max_tokens, self.num_tokens + self.num_tokens // _GROWTH + 1)


_MEMORY = 64  # steps that count


class StepPace:
    """How long steps take lately: so long whatever they compute, and so long for each prompt token.

    A straight line through the last steps, older ones counting less: seconds by prompt tokens. What decodes cost is
    part of the fixed time, which follows them. Until steps with different numbers of prompt tokens were seen, a
    token takes 0.
    """

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


class PromptRoom:
    """Prompt tokens that a step has room for.

    After the first prompt there may be less room, and then for whole prompts only; a step that is smaller by itself
    is filled, with a part of the last prompt if need be.
    """

    def __init__(self, num_tokens: int, num_more: int) -> None:
        self.left = num_tokens
        self.num_taken = 0
        self.is_whole = False
        self._num_more = num_more

    def takes(self, num_tokens: int) -> bool:
        """Whether a prompt of so many tokens may enter, or a part of it."""
        return num_tokens <= self.left or (self.left > 0 and not self.is_whole)

    def take(self, num_tokens: int) -> None:
        is_first = self.num_taken == 0
        self.left -= num_tokens
        self.num_taken += num_tokens
        if is_first and self._num_more < self.left:
            self.left, self.is_whole = self._num_more, True
