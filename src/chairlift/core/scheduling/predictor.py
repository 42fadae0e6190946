"""The expected length of an answer: a learnt quantile of earlier ones, per user."""

from collections import OrderedDict

MAX_USERS = 10_000
START = 256.0


class LengthPredictor:
    """Follows the given quantile of each user's output lengths with one number per user, and of all users together."""

    def __init__(self, quantile: float = 0.7, rate: float = 0.1) -> None:
        self._quantile = quantile
        self._rate = rate
        self._overall = START
        self._users: OrderedDict[str, float] = OrderedDict()

    def expect(self, user: str, limit: int) -> int:
        return max(1, min(limit, round(self._users.get(user, self._overall))))

    def learn(self, user: str, num_output: int) -> None:
        self._overall = self._follow(self._overall, num_output)
        if user:
            self._users[user] = self._follow(self._users.get(user, self._overall), num_output)
            self._users.move_to_end(user)
            if len(self._users) > MAX_USERS:  # the least recent
                self._users.popitem(last=False)

    def _follow(self, guess: float, seen: int) -> float:
        """A step up by the quantile's share when the answer was longer, down by the rest when it was shorter."""
        step = self._rate * max(guess, 8.0)
        return guess + step * self._quantile if seen > guess else max(1.0, guess - step * (1.0 - self._quantile))
