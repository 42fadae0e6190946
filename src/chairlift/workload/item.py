"""One request of a workload: how long it is, when it comes, who sends it, and what it says if that was written down."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    prompt_tokens: int
    output_tokens: int  # exactly as many are generated
    arrival_s: float = 0.0  # after the workload's start
    hash_ids: tuple[int, ...] = ()  # one per `hash_block` prompt tokens: equal ids are equal tokens; (): all its own
    hash_block: float = 512.0  # smaller than in the file where lengths are divided, and perhaps no whole number
    attributes: Attributes = NO_ATTRIBUTES
    prompt: str | tuple[Message, ...] | None = None  # the text or the chat; None: to be made up
    tokens: tuple[int, ...] = ()  # of a prompt that was written, `prompt_tokens` of them
