"""How a vocabulary spells its tokens: the bytes each token id stands for.

Decoding is joining bytes: a byte-level vocabulary maps each character of a token to one byte, a SentencePiece
vocabulary writes spaces as U+2581 and rare bytes as <0xE2>, WordPiece marks pieces that go on with a word. Only one
rule is not per token: a SentencePiece text loses one leading space. Any other decoder is refused by name. Knows nothing
of encoding.
"""

import re
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any

from chairlift.core.errors import InvalidConfig

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_JOINING = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
# The byte of each character in a byte-level vocabulary: printable ones stand for themselves.
_PLAIN = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = [byte for byte in range(256) if byte not in _PLAIN]
BYTE_OF = {chr(byte): byte for byte in _PLAIN} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}


class Spelling(dict[int, bytes]):
    """The bytes of each token id, computed on first use; an id outside the vocabulary spells nothing."""

    def __init__(
        self, parts: list[dict[str, Any]], token_of: Callable[[int], str | None], added: Container[int]
    ) -> None:
        """`parts`: the steps of the decoder."""
        super().__init__()
        self._token_of = token_of
        self._added = added
        kinds = {part["type"] for part in parts}
        self._is_byte_level = kinds == {"ByteLevel"}
        # A WordPiece vocabulary marks the pieces that go on with a word; all others begin one, behind a space.
        self._going_on = parts[0]["prefix"] if kinds == {"WordPiece"} else ""
        if not self._is_byte_level and not self._going_on and not kinds <= _JOINING:
            names = ", ".join(sorted(kinds - _JOINING))
            raise InvalidConfig(f"the tokenizer's decoder is not supported: {names}")
        self._replacements = [_replacement(part) for part in parts if part["type"] in ("Replace", "Metaspace")]
        self._has_byte_tokens = "ByteFallback" in kinds
        # Without a decoder words are joined by single spaces too.
        self._is_spaced = not parts or bool(self._going_on)
        self.drops_first_space = self._is_spaced or any(map(_drops_first_space, parts))

    def __missing__(self, token_id: int) -> bytes:
        token = self._token_of(token_id) if 0 <= token_id < 1 << 32 else None
        if token is None:
            return b""  # not kept: such ids are unbounded
        spelled = self._spell(token_id, token)
        self[token_id] = spelled
        return spelled

    def _spell(self, token_id: int, token: str) -> bytes:
        is_added = token_id in self._added
        if self._is_byte_level:
            if is_added or not all(character in BYTE_OF for character in token):
                return token.encode()
            return bytes(BYTE_OF[character] for character in token)
        byte = _BYTE_TOKEN.fullmatch(token) if self._has_byte_tokens and not is_added else None
        if byte:
            return bytes([int(byte[1], 16)])
        for old, new in self._replacements:
            token = token.replace(old, new)
        if self._going_on and token.startswith(self._going_on):
            return token.removeprefix(self._going_on).encode()
        return (" " + token if self._is_spaced else token).encode()


class WholeTexts(dict[int, str | None]):
    """The text of each token id that spells whole characters, None for any other, computed on first use."""

    def __init__(self, spelling: Spelling) -> None:
        super().__init__()
        self._spelling = spelling

    def __missing__(self, token_id: int) -> str | None:
        text: str | None = None
        with suppress(UnicodeDecodeError):
            text = self._spelling[token_id].decode()
        if token_id in self._spelling:  # only ids of the vocabulary are kept
            self[token_id] = text
        return text


def _replacement(part: dict[str, Any]) -> tuple[str, str]:
    if part["type"] == "Metaspace":
        return part["replacement"], " "
    pattern = part["pattern"]
    if "String" not in pattern:
        raise InvalidConfig("the tokenizer's decoder is not supported: Replace by a regular expression")
    return pattern["String"], part["content"]


def _drops_first_space(part: dict[str, Any]) -> bool:
    if part["type"] == "Strip":
        if part["content"] != " " or part["start"] > 1 or part["stop"] != 0:
            raise InvalidConfig("the tokenizer's decoder is not supported: Strip of more than one leading space")
        return bool(part["start"] == 1)
    return bool(part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never")
