"""The tokenizer that counts a workload's texts: the one that is named, or the embedded model's."""

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.lab.workload.item import Message, PromptEncoder
    from chairlift.text.tokenizer import Tokenizer


def add_tokenizer_flag(parser: argparse.ArgumentParser) -> None:
    what = "tokenizer that counts texts: a file, a model's folder or `llama2` (default: the embedded model's; "
    what += "of synthetic texts none, a word counts as a token)"
    parser.add_argument("--tokenizer", metavar="PATH", help=what)


def tokenizer_at(named: str | None) -> "Tokenizer":
    from chairlift.models.source import Source, locate
    from chairlift.text.find import load_tokenizer
    from chairlift.text.llama2 import NAME, llama2_path

    if named is None:
        return load_tokenizer(locate(None))
    path = llama2_path() if named == NAME else Path(named).expanduser()
    if not path.exists():
        raise InvalidConfig(f"--tokenizer must be an existing file or folder or {NAME}, got {named!r}")
    return load_tokenizer(Source("folder", path, path.name))


def encoder_by(load: "Callable[[], Tokenizer]", output_tokens: int) -> "Callable[[], PromptEncoder]":
    """Loads the tokenizer once, at the first text."""

    @cache
    def load_encoder() -> "PromptEncoder":
        from chairlift.lab.workload.item import PromptEncoder
        from chairlift.text.chat import render

        tokenizer = load()

        def encode(text: str) -> list[int]:
            return tokenizer.encode(text, add_special=False)

        def encode_chat(messages: "Sequence[Message]") -> list[int]:
            return encode(render(tokenizer, messages))

        return PromptEncoder(encode, encode_chat, output_tokens)

    return load_encoder
