"""What users are served in each replica, for the others to count too: so fair shares hold over all of them.

    replica 0 serves ann 300 tokens     ->  told to 1: ann 300         1 counts them as if it had served them
    replica 1 serves ann 500, bob 200   ->  told to 0: ann 500, bob 200

A prompt counts with its first token, less what was cached; so one that is being computed is not told yet. Always: what
a replica is told adds up to what all others have served since it was there. Knows no clock: who calls `take` often
enough keeps replicas near each other.
"""

from collections.abc import Iterable, Sequence

from chairlift.core.events import Admitted, Event, Finished, Token
from chairlift.core.ids import RequestId
from chairlift.core.policy import Service
from chairlift.core.ports import Unobserved
from chairlift.core.request import Request

_PERIOD_S = 0.1
_REPLICA_S = 0.001


def period_s(num_replicas: int) -> float:
    """Between two tellings: a thousand replicas are told a thousand times a second in all."""
    return max(_PERIOD_S, _REPLICA_S * num_replicas)


class FleetService:
    def __init__(self) -> None:
        self._served: dict[int, dict[str, Service]] = {}  # since the last `take`, by replica and user

    def add(self, replica: int, service: Service) -> None:
        _add(self._served.setdefault(replica, {}), service)

    def take(self, replicas: Iterable[int]) -> dict[int, list[Service]]:
        """For each of these that has missed something: what the others have served."""
        served, self._served = self._served, {}
        total: dict[str, Service] = {}
        for services in served.values():
            for service in services.values():
                _add(total, service)
        found = {replica: _without(total, served.get(replica, {})) for replica in replicas}
        return {replica: services for replica, services in found.items() if services}


def _add(to: dict[str, Service], service: Service) -> None:
    before = to.get(service.user)
    if before is None:
        to[service.user] = service
    else:
        to[service.user] = service._replace(
            num_prompt=before.num_prompt + service.num_prompt, num_output=before.num_output + service.num_output
        )


def _without(total: dict[str, Service], own: dict[str, Service]) -> list[Service]:
    if not own:
        return list(total.values())
    left = (
        service._replace(
            num_prompt=service.num_prompt - own[user].num_prompt, num_output=service.num_output - own[user].num_output
        )
        if user in own
        else service
        for user, service in total.items()
    )
    return [service for service in left if service.num_prompt or service.num_output]


class ServedWork(Unobserved):
    """An engine's observer: what it has served, as a front end sees it by the tokens that come."""

    def __init__(self) -> None:
        self._open: dict[RequestId, Service] = {}  # its prompt until the first token, then nothing
        self._new: dict[str, Service] = {}

    def added(self, samples: Sequence[Request], now: float) -> None:
        for request in samples:
            attributes = request.attributes
            num_prompt = 0 if request.sample_index or request.output else len(request.prompt)
            self._open[request.id] = Service(attributes.user, attributes.share, num_prompt, 0)

    def happened(self, events: Sequence[Event]) -> None:
        for event in events:
            service = self._open.get(event.request)
            if service is None:
                continue
            if isinstance(event, Token):
                _add(self._new, service._replace(num_output=1))
                if event.finish is not None:
                    del self._open[event.request]
                elif service.num_prompt:
                    self._open[event.request] = service._replace(num_prompt=0)
            elif isinstance(event, Admitted) and service.num_prompt:
                self._open[event.request] = service._replace(num_prompt=max(0, service.num_prompt - event.num_cached))
            elif isinstance(event, Finished):
                del self._open[event.request]

    def take(self) -> list[Service]:
        """Since the last call."""
        new, self._new = self._new, {}
        return list(new.values())
