"""Roles of replicas: those that compute prompts and those that make answers.

Sets of replicas are bits of numbers. Where replicas have no roles, or all of one role are gone, any takes any request.
"""

from collections.abc import Sequence
from typing import Literal

Role = Literal["prefill", "decode"]
ROLES: tuple[Role, ...] = ("prefill", "decode")


class Roles:
    def __init__(self, roles: Sequence[Role] = ()) -> None:
        """`roles`: of each replica, if they have any."""
        self._bits = {role: sum(1 << i for i, each in enumerate(roles) if each == role) for role in ROLES}

    def is_prefill(self, replica: int) -> bool:
        return bool(self._bits["prefill"] >> replica & 1)

    def takers(self, among: int, has_made: bool) -> int:
        """Those of `among` with the role that a request needs, which has made a token or not; all if none has it."""
        return among & self._bits["decode" if has_made else "prefill"] or among
