"""Checks that a server has the contest's route, without making it generate anything."""

from chairlift.bench.probe import answering
from chairlift.bench.target import Address
from chairlift.contest.requests import ROUTE
from chairlift.core.errors import InvalidConfig


def check_route(address: Address) -> None:
    """A body without a prompt is refused by the right route (422) and unknown to any other (404, 405)."""
    headers = {"Content-Type": "application/json", "Connection": "close"}
    with answering(address, "POST", ROUTE, headers, b"{}") as answer:
        status = answer.status
    if status in (404, 405, 501):
        raise InvalidConfig(
            f"{address} has no {ROUTE} (HTTP {status}): it does not speak llm-serving's API; `chairlift bench` is for "
            "servers that speak OpenAI's"
        )
