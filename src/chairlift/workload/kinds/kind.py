"""What a kind of workload is: the field by which its rows are known, and how a row becomes a request."""

from collections.abc import Callable
from dataclasses import dataclass

from chairlift.workload.fields import Row
from chairlift.workload.item import Item
from chairlift.workload.texts import Texts

Tokenizing = Callable[[], Texts]  # loaded when the first text comes


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    field: str
    item: Callable[[Row, Tokenizing], Item | None]  # None: nothing to ask or to answer; a ValueError: malformed
    is_relative: bool = True  # arrivals count from the workload's start; else from some other time
