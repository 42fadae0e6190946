"""Whether there is a server that has the contest's route, asked without making it generate anything."""

import http.client
from contextlib import closing

from chairlift.bench.target import Address
from chairlift.contest.requests import ROUTE
from chairlift.core.errors import InvalidConfig

_TIMEOUT_S = 30.0


def check_route(address: Address) -> None:
    """A body without a prompt is refused by the right route (422) and unknown to any other (404, 405)."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
    with closing(connection):
        try:
            connection.request("POST", ROUTE, b"{}", {"Content-Type": "application/json", "Connection": "close"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise InvalidConfig(
                f"{address}{ROUTE}: no answer that can be read: {error or type(error).__name__}"
            ) from error
    if status in (404, 405, 501):
        raise InvalidConfig(
            f"{address} has no {ROUTE} (HTTP {status}): it does not speak llm-serving's API; `chairlift bench` is for "
            "servers that speak OpenAI's"
        )
