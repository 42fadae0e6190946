"""A workload file format: the field that identifies its rows, and how a row becomes a request."""

from collections.abc import Callable
from dataclasses import dataclass

from chairlift.workload.encoder import PromptEncoder
from chairlift.workload.fields import Row
from chairlift.workload.item import Item

LoadEncoder = Callable[[], PromptEncoder]  # loaded when the first text comes


@dataclass(frozen=True, slots=True)
class FileFormat:
    name: str
    field: str
    item: Callable[[Row, LoadEncoder], Item | None]  # None: no prompt or no answer; a ValueError: malformed
    is_relative: bool = True  # arrivals count from the workload's start; else from another time
