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
