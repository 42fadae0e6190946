"""Loads the tokenizer of a model: its own, or one that the user names instead.

Whether a tokenizer can be a model's: sizes, special tokens and, where the model has its own, spelling.

An embedding may have more rows than the vocabulary has tokens (padding), and tokens added afterwards may lie beyond it.
"""

from pathlib import Path

from chairlift.core.errors import InvalidConfig
from chairlift.models.files.gguf.header import read_header
from chairlift.models.source import Source
from chairlift.models.spec import ModelConfig
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


_LEAST_USED = 0.9  # of the embedding's rows: padding takes a few per cent
_LEAST_ALIKE = 0.9  # of the tokens compared: files of one vocabulary may name special and unused ones otherwise
_NUM_COMPARED = 1000


def why_unfit(tokenizer: Tokenizer, config: ModelConfig, own: Tokenizer | None) -> str:
    """In words; empty if it fits."""
    rows = config.vocab_size
    if tokenizer.num_trained > rows or tokenizer.vocab_size < _LEAST_USED * rows:
        return f"it has {tokenizer.vocab_size:,} tokens, the model {rows:,}"
    ends = {*config.eos_ids, None if own is None else own.eos_id}
    begins = {config.bos_id, None if own is None else own.bos_id}
    for what, token, known in (("end", tokenizer.eos_id, ends), ("begin", tokenizer.bos_id, begins)):
        others = sorted(each for each in known if each is not None)
        if token is not None and others and token not in others:
            return f"its texts {what} with token {token}, the model's with {', '.join(map(str, others))}"
    return "" if own is None else _why_unlike(tokenizer, own)


def _why_unlike(tokenizer: Tokenizer, own: Tokenizer) -> str:
    num = min(tokenizer.vocab_size, own.vocab_size)
    compared = range(0, num, max(1, num // _NUM_COMPARED))
    num_alike = sum(tokenizer.spelling[token] == own.spelling[token] for token in compared)
    if num_alike >= _LEAST_ALIKE * len(compared):
        return ""
    return f"of {len(compared):,} tokens compared, {num_alike:,} are spelled as in the model's own tokenizer"
