"""Our own JSON lines: lengths, arrivals and attributes; docs/formats.md has every field."""

from chairlift.core.attributes import Attributes
from chairlift.workload.fields import Row, hash_ids, length, seconds, shown, text
from chairlift.workload.formats.format import FileFormat, LoadEncoder
from chairlift.workload.item import Item


def _item(row: Row, _: LoadEncoder) -> Item:
    prompt_tokens = length(row, "prompt_tokens")
    return Item(
        prompt_tokens=prompt_tokens,
        output_tokens=length(row, "output_tokens"),
        arrival_s=seconds(row, "arrival_s") or 0.0,
        hash_ids=hash_ids(row, prompt_tokens),
        attributes=attributes(row),
    )


def attributes(row: Row) -> Attributes:
    user = "" if row.get("user") is None else text(row, "user")
    return Attributes(priority=_priority(row), user=user, deadline_s=seconds(row, "deadline_s"))


def _priority(row: Row) -> int:
    value = row.get("priority")
    if value is None:
        return 0
    if type(value) is not int or abs(value) > 2**31:
        raise ValueError(f"priority must be a whole number, got {shown(value)}")
    return value


LENGTHS = FileFormat("lengths", "prompt_tokens", _item)
