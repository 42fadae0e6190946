"""Public traces of recorded traffic: lengths and times, no text. Requests without a prompt or an answer had failed.

Mooncake, JSON lines   timestamp (ms), input_length, output_length, hash_ids (one per 512 tokens)
Azure LLM, CSV         TIMESTAMP (a date), ContextTokens, GeneratedTokens
BurstGPT, CSV          Timestamp (s), Model, Request tokens, Response tokens, ...
"""

from dataclasses import replace
from datetime import UTC, datetime

from chairlift.workload.fields import Row, hash_ids, length, seconds, shown
from chairlift.workload.formats.format import FileFormat, LoadEncoder
from chairlift.workload.item import Item


def _mooncake(row: Row, _: LoadEncoder) -> Item | None:
    item = _item(row, "input_length", "output_length", 1e-3 * (seconds(row, "timestamp") or 0.0))
    return None if item is None else replace(item, hash_ids=hash_ids(row, item.prompt_tokens))


def _azure(row: Row, _: LoadEncoder) -> Item | None:
    return _item(row, "ContextTokens", "GeneratedTokens", _date(row, "TIMESTAMP"))


def _burstgpt(row: Row, _: LoadEncoder) -> Item | None:
    return _item(row, "Request tokens", "Response tokens", seconds(row, "Timestamp") or 0.0)


def _item(row: Row, prompt: str, output: str, arrival_s: float) -> Item | None:
    prompt_tokens, output_tokens = length(row, prompt, 0), length(row, output, 0)
    if prompt_tokens == 0 or output_tokens == 0:
        return None
    return Item(prompt_tokens=prompt_tokens, output_tokens=output_tokens, arrival_s=arrival_s)


def _date(row: Row, key: str) -> float:
    """In seconds since 1970."""
    written = row.get(key)
    try:
        date = datetime.fromisoformat(_six_digits(str(written)))
    except ValueError as error:
        raise ValueError(f"{key} must be a date and time, got {shown(written)}") from error
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _six_digits(date: str) -> str:
    """These files have seven digits in a fraction of a second, one more than datetime reads."""
    head, dot, tail = date.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    return head + dot + tail[: min(6, digits)].ljust(6 * bool(dot), "0") + tail[digits:]


MOONCAKE = FileFormat("Mooncake", "input_length", _mooncake, is_relative=False)
AZURE = FileFormat("Azure LLM", "ContextTokens", _azure, is_relative=False)
BURSTGPT = FileFormat("BurstGPT", "Request tokens", _burstgpt, is_relative=False)
