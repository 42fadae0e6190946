"""Limits and shares of adapters, by name.

A file is a YAML list. An item is for the adapter of its name; that of * for each one that no other item names:

    - {name: sql, max_requests: 8, requests_per_minute: 60, tokens_per_minute: 100000, weight: 2}
    - {name: "*", max_requests: 4}
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chairlift.config.item_file import check_fields, items_of, positive, short_text
from chairlift.core.errors import InvalidConfig

_EACH = "*"
_MAX_NAME = 200  # as of adapters
_FIELDS = ("name", "max_requests", "requests_per_minute", "tokens_per_minute", "weight")


@dataclass(frozen=True, slots=True)
class AdapterLimit:
    name: str
    max_requests: int | None = None  # at once, of all clients; None: no limit
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None  # prompt and output together
    weight: float | None = None  # of its own share, where the policy is fair-share; None: its users' shares

    @property
    def label(self) -> str:
        return f"adapter {self.name}"

    @property
    def bucket(self) -> str:
        """What its requests are counted under; no key and no address is written so."""
        return f"\0{self.label}"


class AdapterLimits:
    def __init__(self, limits: Iterable[AdapterLimit] = ()) -> None:
        self._by_name = {limit.name: limit for limit in limits}

    def find(self, name: str) -> AdapterLimit | None:
        each = self._by_name.get(_EACH)
        return self._by_name.get(name) or (each and replace(each, name=name))


def read_adapter_limits(file: Path | None) -> list[AdapterLimit]:
    """`InvalidConfig` names what is wrong where."""
    items = () if file is None else items_of(file, "limits of adapters")
    found = [_limit(item, f"{file}: item {i + 1}") for i, item in enumerate(items)]
    if len({limit.name for limit in found}) != len(found):
        raise InvalidConfig(f"{file}: two items have the same name")
    return found


def _limit(item: Any, where: str) -> AdapterLimit:
    if not isinstance(item, dict):
        raise InvalidConfig(f"{where}: must be a map such as {{name: sql, max_requests: 8}}")
    check_fields(item, _FIELDS, where)
    name = short_text(item.get("name"), where, "name", _MAX_NAME)
    most = item.get("max_requests")
    if most is not None and (type(most) is not int or most < 1):
        raise InvalidConfig(f"{where}: max_requests must be a whole number above 0")
    return AdapterLimit(name, most, *(positive(item.get(field), where, field) for field in _FIELDS[2:]))
