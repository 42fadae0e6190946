"""Requests of different bodies in turn: a body with many inputs does not hold up those with few.

As `fair_share`, with each body (`Attributes.group`) in the place of a user, and with the weight of its user's key.
Requests of one body are served in order.
"""

from collections.abc import Sequence

from chairlift.core.policies.fair_share import FairShare
from chairlift.core.policy import RequestView, Service


class InTurn(FairShare):
    skips_steady = True

    def owner(self, view: RequestView) -> str:
        attributes = view.request.attributes
        return attributes.group or attributes.user

    def served_elsewhere(self, services: Sequence[Service]) -> None:
        """Nothing: a body is in one replica."""
