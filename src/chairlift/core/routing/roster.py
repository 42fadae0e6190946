"""The replicas of a front end that are there, and which of them may take a request.

Sets of replicas are bits of numbers, as the router has them. A replica that an operator drained stays drained when its
engine dies and another takes its place, until it is resumed or removed.
"""

from collections.abc import Sequence
from typing import Literal

Role = Literal["prefill", "decode"]
ROLES: tuple[Role, ...] = ("prefill", "decode")


class Roles:
    """Replicas that compute prompts and those that make answers. Where they have no roles, or all of one role are gone,
    any takes any request."""

    def __init__(self, roles: Sequence[Role] = ()) -> None:
        """`roles`: of each replica, if they have any."""
        self._bits = {role: sum(1 << i for i, each in enumerate(roles) if each == role) for role in ROLES}

    def is_prefill(self, replica: int) -> bool:
        return bool(self._bits["prefill"] >> replica & 1)

    def takers(self, among: int, has_made: bool) -> int:
        """Those of `among` with the role that a request needs, which has made a token or not; all if none has it."""
        return among & self._bits["decode" if has_made else "prefill"] or among


class Roster:
    def __init__(self, roles: Sequence[Role] = ()) -> None:
        """`roles`: of each replica, if they have any."""
        self.ready = 0  # those that are there
        self._drained = 0  # those that are to be left, whether they are there or not
        self._alike: dict[str | None, int] = {}  # those that are there, by fingerprint
        self._roles = Roles(roles)

    def come(self, replica: int, fingerprint: str | None) -> None:
        bit = 1 << replica
        self.go(replica)
        self.ready |= bit
        self._alike[fingerprint] = self._alike.get(fingerprint, 0) | bit

    def go(self, replica: int) -> None:
        bit = 1 << replica
        self.ready &= ~bit
        self._alike = {fingerprint: bits & ~bit for fingerprint, bits in self._alike.items()}

    def drain(self, replica: int, is_on: bool) -> None:
        bit = 1 << replica
        self._drained = self._drained | bit if is_on else self._drained & ~bit

    def is_drained(self, replica: int) -> bool:
        return bool(self._drained >> replica & 1)

    def is_prefill(self, replica: int) -> bool:
        return self._roles.is_prefill(replica)

    def takers(self, fingerprint: str | None, has_made: bool, num_replicas: int) -> int:
        """Those with the fingerprint with which a request began (None: it has not). If all `num_replicas` are there and
        none has it, any; if all drain, these too. Of these, those with the role that it needs, if there are some."""
        return self._roles.takers(self._alike_takers(fingerprint, num_replicas), has_made)

    def _alike_takers(self, fingerprint: str | None, num_replicas: int) -> int:
        takers = self.ready & ~self._drained or self.ready
        if fingerprint is None:
            return takers
        alike = self._alike.get(fingerprint, 0)
        if not alike and self.ready.bit_count() == num_replicas:
            return takers
        return alike & takers or alike
