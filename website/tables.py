"""Markdown tables of plain text."""

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are Markdown already."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def plain(text: str) -> str:
    """Text as Markdown that shows it as it is."""
    for sign, shown in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("*", "\\*"), ("_", "\\_")):
        text = text.replace(sign, shown)
    return " ".join(text.split())


def code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`" if text else ""


class Shared:
    """Rows that several tables of a page have: a later table names them and says which one describes them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix  # of the headings
        self._first: dict[tuple[str, ...], str] = {}

    def split(self, name: str, rows: Sequence[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], str]:
        """The rows of this table that are new, and a line for each table that has others."""
        own = [row for row in rows if row not in self._first]
        lines = ""
        for other in dict.fromkeys(self._first[row] for row in rows if row in self._first):
            title = self._prefix + other
            names = ", ".join(row[0] for row in rows if self._first.get(row) == other)
            lines += f"\nAs in [{title}](#{title.lower().replace(' ', '-')}): {names}.\n"
        self._first |= dict.fromkeys(own, name)
        return own, lines
