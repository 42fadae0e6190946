"""How written prompts become lengths: a tokenizer, as functions, and a default length for answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.item import Message

OUTPUT_TOKENS = 128


@dataclass(frozen=True, slots=True)
class PromptEncoder:
    encode: Callable[[str], Sequence[int]]  # without special tokens
    encode_chat: Callable[[Sequence[Message]], Sequence[int]]
    output_tokens: int = OUTPUT_TOKENS  # of an answer without a recorded length


def no_encoder() -> PromptEncoder:
    raise InvalidConfig("the prompts of this workload are texts, which only a tokenizer can count")
