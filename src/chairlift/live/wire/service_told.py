"""Tells each replica how much service users got from the others, where its policy needs that.

Always: each token of this front end's requests is told once to every replica but the one that made it. So all front
ends together tell everything, and none needs to know of another.
"""

import asyncio
from collections.abc import Callable

from chairlift.core.policy import Service
from chairlift.core.routing.replicas import members
from chairlift.core.routing.service import FleetService, period_s
from chairlift.live.wire.messages import Elsewhere


class ServiceTold:
    def __init__(self, send: Callable[[int, Elsewhere], object]) -> None:
        self._send = send
        self._replicas = 0  # those that are to be told; bits
        self._service = FleetService()
        self._will_tell = False

    @property
    def is_on(self) -> bool:
        """Whether there are several to be told."""
        return bool(self._replicas & (self._replicas - 1))

    def come(self, replica: int, counts_users: bool) -> None:
        self.go(replica)
        self._replicas |= counts_users << replica

    def go(self, replica: int) -> None:
        self._replicas &= ~(1 << replica)

    def count(self, replica: int, service: Service) -> None:
        self._service.add(replica, service)
        if not self._will_tell:
            self._will_tell = True
            asyncio.get_running_loop().call_later(period_s(self._replicas.bit_count()), self._tell)

    def _tell(self) -> None:
        self._will_tell = False
        for replica, services in self._service.take(members(self._replicas)).items():
            self._send(replica, Elsewhere(services))
