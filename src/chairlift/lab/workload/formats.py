"""The formats of workload files: the field that identifies a format's rows, and how a row becomes a request.

Public traces of recorded traffic: lengths and times, no text. Requests without a prompt or an answer had failed.

Mooncake, JSON lines   timestamp (ms), input_length, output_length, hash_ids (one per 512 tokens)
Azure LLM, CSV         TIMESTAMP (a date), ContextTokens, GeneratedTokens
BurstGPT, CSV          Timestamp (s), Model, Request tokens, Response tokens, ...

Written prompts: instructions, conversations, and a user's own. A tokenizer counts their lengths.

Alpaca, JSON      instruction, input, output: the prompt is `instruction:input`, or the instruction alone, as in the
                  contest; the answer is as long as `output`
ShareGPT, JSON    conversations: the first turn is the prompt, the answer is as long as the second
prompts           prompt (a text) or messages (a chat), output_tokens or max_tokens, and arrival_s, priority, user,
                  deadline_s as in a workload of lengths
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from chairlift.core.attributes import Attributes
from chairlift.lab.workload.item import Item, PromptEncoder
from chairlift.lab.workload.table_rows import Row, hash_ids, length, seconds, shown, text

LoadEncoder = Callable[[], PromptEncoder]  # loaded when the first text comes


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A workload file format: the field that identifies its rows, and how a row becomes a request."""

    name: str
    field: str
    item: Callable[[Row, LoadEncoder], Item | None]  # None: no prompt or no answer; a ValueError: malformed
    is_relative: bool = True  # arrivals count from the workload's start; else from another time


def _of_lengths(row: Row, _: LoadEncoder) -> Item:
    prompt_tokens = length(row, "prompt_tokens")
    return Item(
        prompt_tokens=prompt_tokens,
        output_tokens=length(row, "output_tokens"),
        arrival_s=seconds(row, "arrival_s") or 0.0,
        hash_ids=hash_ids(row, prompt_tokens),
        attributes=attributes(row),
        **_answers(row),
    )


def _answers(row: Row) -> dict[str, Any]:
    """How many, and by how wide a search."""
    return {key: length(row, key) for key in ("n", "beam_width") if row.get(key) is not None}


def attributes(row: Row) -> Attributes:
    """Our own JSON lines: lengths, arrivals and attributes; docs/formats.md has every field."""
    user = "" if row.get("user") is None else text(row, "user")
    return Attributes(priority=_priority(row), user=user, deadline_s=seconds(row, "deadline_s"))


def _priority(row: Row) -> int:
    value = row.get("priority")
    if value is None:
        return 0
    if type(value) is not int or abs(value) > 2**31:
        raise ValueError(f"priority must be a whole number, got {shown(value)}")
    return value


LENGTHS = FileFormat("lengths", "prompt_tokens", _of_lengths)


def _mooncake(row: Row, _: LoadEncoder) -> Item | None:
    item = _traced(row, "input_length", "output_length", 1e-3 * (seconds(row, "timestamp") or 0.0))
    return None if item is None else replace(item, hash_ids=hash_ids(row, item.prompt_tokens))


def _azure(row: Row, _: LoadEncoder) -> Item | None:
    return _traced(row, "ContextTokens", "GeneratedTokens", _date(row, "TIMESTAMP"))


def _burstgpt(row: Row, _: LoadEncoder) -> Item | None:
    return _traced(row, "Request tokens", "Response tokens", seconds(row, "Timestamp") or 0.0)


def _traced(row: Row, prompt: str, output: str, arrival_s: float) -> Item | None:
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


def _alpaca(row: Row, load_encoder: LoadEncoder) -> Item | None:
    more = row.get("input")
    prompt = text(row, "instruction") + (f":{text(row, 'input')}" if more else "")
    return _asked(prompt, text(row, "output"), load_encoder)


def _sharegpt(row: Row, load_encoder: LoadEncoder) -> Item | None:
    turns = row.get("conversations")
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise ValueError(f"conversations must be a list of turns, got {shown(turns)}")
    if len(turns) < 2:
        return None
    return _asked(text(turns[0], "value"), text(turns[1], "value"), load_encoder)


def _asked(prompt: str, answer: str, load_encoder: LoadEncoder) -> Item | None:
    encode = load_encoder().encode
    tokens, output_tokens = tuple(encode(prompt)), len(encode(answer))
    if not tokens or output_tokens == 0:
        return None
    return Item(prompt_tokens=len(tokens), output_tokens=output_tokens, prompt=prompt, tokens=tokens)


def _own(row: Row, load_encoder: LoadEncoder) -> Item:
    messages = row.get("messages")
    if messages is None:
        prompt: str | tuple[dict[str, object], ...] = text(row, "prompt")
        tokens = tuple(load_encoder().encode(text(row, "prompt")))
    elif isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        prompt, tokens = tuple(messages), tuple(load_encoder().encode_chat(messages))
    else:
        raise ValueError(f"messages must be a list of messages, got {shown(messages)}")
    if not tokens:
        raise ValueError("the prompt is empty")
    return Item(
        prompt_tokens=len(tokens),
        output_tokens=_output_tokens(row, load_encoder),
        arrival_s=seconds(row, "arrival_s") or 0.0,
        attributes=attributes(row),
        **_answers(row),
        prompt=prompt,
        tokens=tokens,
    )


def _output_tokens(row: Row, load_encoder: LoadEncoder) -> int:
    key = next((key for key in ("output_tokens", "max_tokens") if row.get(key) is not None), None)
    return load_encoder().output_tokens if key is None else length(row, key)


ALPACA = FileFormat("Alpaca", "instruction", _alpaca)
SHAREGPT = FileFormat("ShareGPT", "conversations", _sharegpt)
PROMPTS = FileFormat("prompts", "prompt", _own)
CHATS = FileFormat("chats", "messages", _own)
