"""A tokenizer for workloads of texts: a token per word, equal for equal words."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from chairlift.lab.workload.item import PromptEncoder


def encode(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) % 1000 for word in text.split()]


def encode_chat(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    return [token for message in messages for token in (1, *encode(str(message.get("content"))))]


def word_encoder() -> PromptEncoder:
    return PromptEncoder(encode, encode_chat, output_tokens=9)
