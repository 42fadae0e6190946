"""The most characters that one token can stand for, which bounds the text of a number of tokens.

Always: a tokenizer that may drop text (unknown characters, spaces around a special token) is assumed to drop less than
`DROPPED` characters for each token that it makes.
"""

import json
from collections.abc import Sequence
from typing import Any

import tokenizers

DROPPED = 256
_COMPOSED = 4  # characters that normalizing may join into one
_UNICODE = {"NFC", "NFD", "NFKC", "NFKD"}
_WHOLE = {"ByteLevel", "Digits", "Metaspace", "Split", "Prepend", "Replace"}  # leave nothing out


def most_characters(core: tokenizers.Tokenizer, spelled: Sequence[bytes]) -> int:
    """`spelled`: the bytes of every token."""
    longest = max(map(len, spelled), default=1)
    normalizers, splitters = parts_of(core.normalizer), parts_of(core.pre_tokenizer)
    if any(part["type"] in _UNICODE for part in normalizers):
        longest *= _COMPOSED
    is_whole = (
        isinstance(core.model, tokenizers.models.BPE)
        and len({token for token in spelled if len(token) == 1}) == 256  # one for every byte
        and all(part["type"] in _WHOLE | _UNICODE and _keeps(part) for part in (*normalizers, *splitters))
        and not any(token.lstrip or token.rstrip for token in core.get_added_tokens_decoder().values())
    )
    return longest if is_whole else max(longest, DROPPED)


def _keeps(part: dict[str, Any]) -> bool:
    if part["type"] == "Split":
        return part.get("behavior") != "Removed"
    return part["type"] != "Replace" or len(part["pattern"].get("String", "")) == 1 == len(part["content"])


def parts_of(step: Any) -> list[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder."""
    return [] if step is None else _flat(json.loads(step.__getstate__()))


def _flat(facts: dict[str, Any]) -> list[dict[str, Any]]:
    if facts["type"] != "Sequence":
        return [facts]
    inside = next(facts[name] for name in ("normalizers", "pretokenizers", "decoders") if name in facts)
    return [part for inner in inside for part in _flat(inner)]
