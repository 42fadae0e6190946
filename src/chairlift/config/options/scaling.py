"""The rule of autoscaling from text, as simulated and live fleets take it.

2-16:target=2048,up=10,down=120        LEAST-MOST replicas; load of one in tokens, seconds
"""

import re

from chairlift.config.options.values import text
from chairlift.core.errors import InvalidConfig
from chairlift.core.routing.scaling import Scaling

MAX_REPLICAS = 1024
_SPEC = re.compile(r"(\d{1,4})-(\d{1,4})(?::(.*))?")
_KEYS = ("target", "up", "down")


def make_scaling(given: str, *more: str) -> tuple[Scaling, dict[str, float]]:
    """The rule, and the values of the keys in `more`."""
    match = _SPEC.fullmatch(given)
    if match is None:
        raise InvalidConfig(
            f"--autoscale {given}: give the least and the most replicas, as in 2-16 or 2-16:target=2048"
        )
    if int(match[2]) > MAX_REPLICAS:
        raise InvalidConfig(f"--autoscale {given}: {MAX_REPLICAS} replicas are the most that there may be; give fewer")
    values: dict[str, float] = {}
    for part in (match[3] or "").split(",") if match[3] else ():
        key, _, value = part.partition("=")
        if key not in (*_KEYS, *more) or key in values or not re.fullmatch(r"\d+(\.\d*)?", value):
            raise InvalidConfig(f"--autoscale {part}: give key=number once for each of: {', '.join((*_KEYS, *more))}")
        values[key] = float(value)
    others = {key: values.pop(key) for key in more if key in values}
    try:
        return Scaling(int(match[1]), int(match[2]), **values), others
    except ValueError as error:
        raise InvalidConfig(f"--autoscale {given}: {error}") from error


def scaling_text(value: object) -> str:
    """Checked here, made anew where it is used: the rule keeps state."""
    found = text(value)
    make_scaling(found)
    return found
