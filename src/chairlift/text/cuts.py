"""Where a long text may be cut so that its pieces, tokenized alone, give the tokens of the whole.

The library takes some two hundred bytes for each byte of a text, so long texts go to it in pieces. A cut is safe where
no token can reach across and each side is independent of the other:

    The quick|brown fox, 12|. And so on         behind a letter or digit, before a space, a line break or a sign

Always: a kind of cut is used only if no token of the vocabulary holds its two characters in a row, which makes the BPE
merges of both sides independent, and if it changes nothing in the trial texts. A vocabulary that begins every text with
a space of its own is cut at spaces, which are left out. Other models and normalizers have no cuts.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tokenizers

from chairlift.text.lengths import parts_of

Encode = Callable[[str], list[int]]
PIECE = 16_384  # characters before a cut is searched; some 20 ms of work
_LOOK_BACK = 256  # characters in which a last cut is searched first
MAX_PIECE = 262_144  # bytes; some 30 MiB while the library works on it
_SIGNS = "\n\t .,;:!?()[]{}<>/+-*=\"'|&%$#@~`^\\\u3002\u3001\uff0c\uff1b\uff1a\uff01\uff1f"
_MARKS = "\u0300-\u036f\u20d0-\u20ff\u3099\u309a"  # combine with the sign before them
_KEEPING = {"NFC", "Prepend", "Replace"}  # normalizers that join no characters across a cut
_TRIED = (
    "It's 12:30 now; he said (twice) that they'd won. Numbers: 1,234.5 and 3x4=12.\nNext line\n\n  indented\tby a tab",
    "a b c d e f g 1 2 3 4 5 x1 y2, z3; \u00fcber caf\u00e9s!",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u518d\u89c1 \u65e5\u672c\u8a9e\u3001\u30c6\u30b9\u30c8!",
    'def f(x):\n    return {"a": [x + 1, -2], "b/c": "d&e"}  # <tag attr=\'v\'>text</tag>\r\n' * 2,
)


class Uncut(Exception):
    """A text has too long a stretch without a cut."""


class Cuts:
    def __init__(self, pattern: re.Pattern[str], is_left_out: bool) -> None:
        self._pattern = pattern
        self._is_left_out = is_left_out  # the character at a cut

    def pieces(self, text: str, size: int = PIECE) -> Iterator[str]:
        """Each of at least `size` characters but the last; raises `Uncut` at one over `MAX_PIECE` bytes."""
        begin = 0
        while (end := self._end(text, begin, size)) is not None:
            yield _checked(text[begin:end])
            begin = end + self._is_left_out
        yield _checked(text[begin:])

    def split_last(self, text: str) -> tuple[str, str]:
        """At its last cut that does not depend on what follows the text; all is behind it where there is none."""
        size = _LOOK_BACK
        while True:
            found = self._pattern.finditer(text, max(0, len(text) - size))
            last = max((each.start() for each in found if each.end() < len(text)), default=None)
            if last is not None:
                return text[:last], text[last + self._is_left_out :]
            if size >= len(text):
                return "", text
            size *= 8

    def _end(self, text: str, begin: int, size: int) -> int | None:
        last = begin + MAX_PIECE
        found = self._pattern.search(text, begin + size, last + 2)  # 2 more: the pattern looks ahead
        return None if found is None or found.start() > last else found.start()


def _checked(piece: str) -> str:
    if len(piece) > MAX_PIECE or (len(piece) > MAX_PIECE // 4 and len(piece.encode(errors="replace")) > MAX_PIECE):
        raise Uncut
    return piece


def find_cuts(core: tokenizers.Tokenizer, spelled: Iterable[bytes], encode: Encode) -> Cuts | None:
    """`spelled`: the bytes of every token. None: only the whole text gives its tokens."""
    if not _is_separable(core):
        return None
    maybe = re.compile(rb"[0-9A-Za-z\x80-\xff][" + re.escape(b"".join(sign.encode()[:1] for sign in _SIGNS)) + rb"]")
    tokens = [token for token in spelled if maybe.search(token)]
    signs = [sign for sign in _SIGNS if not any(_reaches_across(token, sign.encode()) for token in tokens)]
    added = [token.content for token in core.get_added_tokens_decoder().values()]
    tried = [*_TRIED, *(f"so {token} it is{token}x, y {token}{token}. z" for token in added[:8])]
    # Beside a special token a space stays a space: where spaces are left out, words must stand on both sides.
    can_leave_out = " " in signs and not any(token[:1].isalnum() or token[-1:].isalnum() for token in added)
    for usable, behind, is_left_out in ((signs, f"(?![{_MARKS}])", False), (" " * can_leave_out, r"(?=[^\W_])", True)):
        if usable:
            kind = "".join(map(re.escape, usable))
            cuts = Cuts(re.compile(rf"(?<=[^\W_])[{kind}]{behind}"), is_left_out)
            if all(_is_same(cuts, text, encode) for text in tried):
                return cuts
    return None


def _is_separable(core: tokenizers.Tokenizer) -> bool:
    if not isinstance(core.model, tokenizers.models.BPE) or core.model.dropout:
        return False
    if any(part["type"] not in _KEEPING or not _is_plain(part) for part in parts_of(core.normalizer)):
        return False
    return not any(
        (token.rstrip and token.content[-1:].isalnum()) or (token.single_word and token.content[:1] in _SIGNS)
        for token in core.get_added_tokens_decoder().values()
    )


def _is_plain(part: dict[str, Any]) -> bool:
    """A replacement must be of a space by one character."""
    return part["type"] != "Replace" or (part["pattern"].get("String") == " " and len(part["content"]) == 1)


def _reaches_across(token: bytes, sign: bytes) -> bool:
    """Whether it holds a letter or digit, or the end of a possible one, followed by the beginning of the sign."""
    at = token.find(sign[:1], 1)
    while at > 0:
        rest = token[at : at + len(sign)]
        if sign.startswith(rest):
            before = token[:at].decode(errors="replace")[-1:]
            if before.isalnum() or before == "\ufffd":
                return True
        at = token.find(sign[:1], at + 1)
    return False


def _is_same(cuts: Cuts, text: str, encode: Encode) -> bool:
    whole = encode(text)
    return all([id for piece in cuts.pieces(text, size) for id in encode(piece)] == whole for size in (1, 2, 3, 7, 20))
