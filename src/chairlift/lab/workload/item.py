"""One request of a workload: its lengths, arrival and attributes, and its prompt where one was written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes

Message = Mapping[str, Any]
HASH_BLOCK = 512  # prompt tokens per hash id in a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    prompt_tokens: int
    output_tokens: int  # generated exactly
    arrival_s: float = 0.0  # after the workload's start
    hash_ids: tuple[int, ...] = ()  # one per `hash_block` prompt tokens: equal ids are equal tokens; (): nothing shared
    hash_block: float = HASH_BLOCK  # smaller than in the file where lengths are divided, then perhaps a fraction
    attributes: Attributes = NO_ATTRIBUTES
    prompt: str | tuple[Message, ...] | None = None  # the text or the chat; None: synthetic
    tokens: tuple[int, ...] = ()  # of a written prompt, `prompt_tokens` of them
