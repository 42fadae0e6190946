"""Builds the tokenizer in the metadata of a GGUF file.

Three kinds are known: "gpt2" (byte-level BPE with a list of merges; `tokenizer.ggml.pre` names the cut into words),
"llama" (SentencePiece BPE) and "gemma4" (its pieces with a list of merges). Any other kind or cut is refused by name: a
guess would give wrong tokens.
"""

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as CoreTokenizer
from tokenizers.models import BPE

from chairlift.core.errors import InvalidConfig
from chairlift.text.sentencepiece_model import PieceModel
from chairlift.text.spm import add_typed_tokens, build_spm, escape_spaces
from chairlift.text.tokenizer import Tokenizer

_ENDINGS, _BEFORE, _SPACES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?", r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _ENDINGS + "|" + _BEFORE + r"\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
# Marks belong to words, as in scripts that write vowels so.
_WORDS_WITH_MARKS = _ENDINGS + "|" + _BEFORE + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _SPACES
_LARGE, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# A word ends where a capital follows a small letter, and has its ending.
_WORDS_BY_CASE = (
    f"{_BEFORE}{_LARGE}*{_SMALL}+{_ENDINGS}?|{_BEFORE}{_LARGE}+{_SMALL}*{_ENDINGS}?"
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
)  # fmt: skip
# As `tokenizer.ggml.pre` names them.
_REGEXES = {
    "llama-bpe": _WORDS % "{1,3}", "glm4": _WORDS % "{1,3}", "qwen2": _WORDS % "", "qwen35": _WORDS_WITH_MARKS,
    "gpt-4o": _WORDS_BY_CASE,
}  # fmt: skip
_COMPOSED = ("qwen2", "qwen35")  # their texts are normalised before
_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


def gguf_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    kind = metadata.get("tokenizer.ggml.model")
    tokens = _array(metadata, "tokens", str)
    types = _array(metadata, "token_type", int) or [1] * len(tokens)
    if not tokens:
        raise InvalidConfig("the GGUF file holds no tokenizer: tokenizer.ggml.tokens is missing")
    if len(types) != len(tokens):
        raise InvalidConfig(f"the GGUF file has {len(tokens)} tokens but {len(types)} token types")
    if kind == "gpt2":
        core = _byte_level(metadata, tokens, types)
        adds_bos = metadata.get("tokenizer.ggml.pre") == "llama-bpe"
    elif kind == "llama":
        scores = [float(score) for score in _array(metadata, "scores", (int, float))]
        has_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
        core = build_spm(PieceModel(pieces=tokens, scores=scores, types=types, adds_prefix_space=has_prefix))
        adds_bos = True
    elif kind == "gemma4":
        core, adds_bos = _spaced(metadata, tokens, types), True
    else:
        raise InvalidConfig(f"GGUF tokenizer model {kind!r} is not supported; only gpt2, llama and gemma4 are")
    ids = {name: _token_id(metadata, name, len(tokens)) for name in (*_NAMES, "eot")}
    return Tokenizer(
        core,
        bos_id=ids["bos"],
        eos_id=ids["eos"],
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", adds_bos)),
        more_special=[ids["eot"]] if ids["eot"] is not None else [],
        chat_template=gguf_chat_template(metadata),
        template_tokens={_NAMES[n]: tokens[i] for n, i in ids.items() if n in _NAMES and i is not None},
    )


def gguf_chat_template(metadata: Mapping[str, Any]) -> str | None:
    template = metadata.get("tokenizer.chat_template")
    return template if isinstance(template, str) else None


def _byte_level(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> CoreTokenizer:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    cut = _cut(pre)
    core = _merging(metadata, tokens, ignore_merges=pre == "llama-bpe")
    core.pre_tokenizer = cut
    if pre in _COMPOSED:
        core.normalizer = normalizers.NFC()
    core.decoder = decoders.ByteLevel()
    add_typed_tokens(core, tokens, types)
    return core


def _spaced(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> CoreTokenizer:
    """Merges run over a whole text, whose spaces are characters as others; bytes stand for what has no token."""
    unknown = _token_id(metadata, "unknown", len(tokens))
    name = None if unknown is None else tokens[unknown]
    core = _merging(metadata, tokens, unk_token=name, fuse_unk=True, byte_fallback=True)
    escape_spaces(core)
    add_typed_tokens(core, tokens, types)
    return core


def _merging(metadata: Mapping[str, Any], tokens: list[str], **how: Any) -> CoreTokenizer:
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise InvalidConfig("the GGUF file lists a token twice")
    merges = [tuple(merge.split(" ", 1)) for merge in _array(metadata, "merges", str)]
    if any(len(merge) != 2 for merge in merges):
        raise InvalidConfig("the GGUF file has a merge that is not of two tokens")
    try:
        return CoreTokenizer(BPE(vocab=vocab, merges=merges, **how))
    except Exception as error:  # the library raises the bare class
        raise InvalidConfig(f"the GGUF file's tokenizer cannot be built: {error}") from error


def _cut(pre: object) -> pre_tokenizers.PreTokenizer:
    """The cut into words that comes before merging."""
    by_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if pre in ("gpt-2", "default"):
        return by_words
    if pre == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), by_words])
    if isinstance(pre, str) and pre in _REGEXES:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_REGEXES[pre]), "isolated"), as_bytes])
    raise InvalidConfig(f"GGUF pre-tokenizer {pre!r} is not supported; only smollm, gpt-2, {', '.join(_REGEXES)} are")


def _array(metadata: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{name}", [])
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise InvalidConfig(f"tokenizer.ggml.{name} in the GGUF file is not a list of the right type")
    return values


def _token_id(metadata: Mapping[str, Any], name: str, num_tokens: int) -> int | None:
    token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
    if token_id is None:
        return None
    if not isinstance(token_id, int) or not 0 <= token_id < num_tokens:
        raise InvalidConfig(f"tokenizer.ggml.{name}_token_id {token_id} is outside the vocabulary of {num_tokens}")
    return token_id
