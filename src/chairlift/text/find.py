"""Loads the tokenizer of a model: its own, or one that the user names instead."""

from pathlib import Path

from chairlift.config.gguf.header import read_header
from chairlift.config.source import Source
from chairlift.core.errors import InvalidConfig
from chairlift.text.folder import folder_chat_template, folder_tokenizer, json_tokenizer, model_tokenizer
from chairlift.text.gguf_tokenizer import gguf_chat_template, gguf_tokenizer
from chairlift.text.tokenizer import Tokenizer


def load_tokenizer(source: Source, override: Path | None = None, chat_template: str | None = None) -> Tokenizer:
    """`override`: a folder, tokenizer.json, .model or .gguf to use instead; the chat template may stay the model's.
    `chat_template`: one to use instead of any other."""
    own = source.folder if source.kind == "ckpt" else source.path
    tokenizer = _load(override or own)
    if override is not None and tokenizer.chat_template is None:
        if source.kind == "gguf":
            tokenizer.chat_template = gguf_chat_template(read_header(source.path).metadata)
        else:
            tokenizer.chat_template = folder_chat_template(source.folder)
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    return tokenizer


def _load(path: Path) -> Tokenizer:
    if path.is_dir():
        return folder_tokenizer(path)
    if not path.is_file():
        raise InvalidConfig(f"{path}: no such tokenizer file or folder")
    if path.suffix.lower() == ".gguf":
        metadata = read_header(path).metadata
        try:
            return gguf_tokenizer(metadata)
        except InvalidConfig as error:
            raise InvalidConfig(f"{path}: {error}") from error
    return json_tokenizer(path) if path.suffix.lower() == ".json" else model_tokenizer(path)
