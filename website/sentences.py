"""Refuses long sentences in README and docs: python website/sentences.py [PAGE ...]; every page without one.

A sentence has at most 40 words. Tables, code, headings and the pages that the code makes (docs/reference) do not count.
An item of a list is a paragraph; what stands in backticks is one word, and so is a list of it.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST = 40
_ASIDE = re.compile(r"^(```.*?^```|<!--.*?-->)$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<=[.!?。！？])[\"”')*_]*(?:\s+|(?<=[。！？]))")


def pages() -> list[Path]:
    made = ROOT / "docs" / "reference"
    docs = (page for page in (ROOT / "docs").rglob("*.md") if not page.is_relative_to(made))
    return sorted([*(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"), *docs])


def long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Those with too many words: how many, and the sentence."""
    for paragraph in _paragraphs(_ASIDE.sub("", text)):
        for sentence in _END.split(_plain(paragraph)):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > MOST:
                yield len(words), " ".join(words)


def _paragraphs(text: str) -> Iterator[str]:
    lines: list[str] = []
    is_code = False
    for line in (*text.splitlines(), ""):
        is_code = line.startswith("    ") and (is_code or not lines)
        if is_code or not line.strip() or line.lstrip().startswith(("|", "#", "![")):
            yield " ".join(lines)
            lines = []
        elif _ITEM.match(line):
            yield " ".join(lines)
            lines = [_ITEM.sub("", line)]
        else:
            lines.append(line.strip().removeprefix("> "))


def _plain(paragraph: str) -> str:
    """Without what a reader does not see: where links lead, and the inside of code."""
    text = re.sub(r"`[^`]+`", "`x`", re.sub(r"\[([^\]]*)\]\([^()\s]+\)", r"\1", paragraph))
    return re.sub(r"`x`(?:(?:,| and| or) `x`)+", "`x`", text)


def main() -> int:
    named = [Path(name).resolve() for name in sys.argv[1:]]
    found = [
        f"{os.path.relpath(page, ROOT)}: {count} words: {sentence}"
        for page in named or pages()
        for count, sentence in long_sentences(page.read_text())
    ]
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
