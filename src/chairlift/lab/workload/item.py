"""One request of a workload: its lengths, arrival and attributes, and its prompt where one was written; and what makes
lengths of written prompts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.errors import InvalidConfig

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
    n: int = 1  # answers to the prompt
    beam_width: int = 0  # of a search; 0: they are sampled
    prompt: str | tuple[Message, ...] | None = None  # the text or the chat; None: synthetic
    tokens: tuple[int, ...] = ()  # of a written prompt, `prompt_tokens` of them


OUTPUT_TOKENS = 128


@dataclass(frozen=True, slots=True)
class PromptEncoder:
    """A tokenizer, as functions, and a default length for answers."""

    encode: Callable[[str], Sequence[int]]  # without special tokens
    encode_chat: Callable[[Sequence[Message]], Sequence[int]]
    output_tokens: int = OUTPUT_TOKENS  # of an answer without a recorded length


def no_encoder() -> PromptEncoder:
    raise InvalidConfig("the prompts of this workload are texts, which only a tokenizer can count")
