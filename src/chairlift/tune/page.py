"""A page of headings, paragraphs, tables and a picture, as Markdown or as HTML that needs no other file."""

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222 }
img { max-width: 100% } table { border-collapse: collapse; font-size: 13px }
code { background: #f2f2f2; padding: 0 .2em }
pre { background: #f2f2f2; padding: .6rem .9rem; overflow-x: auto }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top }
th:first-child, td:first-child, .text { text-align: left }
"""
_LONG = 24  # characters: a column with such a cell is words, and stands on the left


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str  # words in backquotes are code


@dataclass(frozen=True, slots=True)
class Code:
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    name: str  # of the file beside a Markdown page
    alt: str
    png: bytes


Block = Heading | Text | Code | Table | Picture


def to_markdown(title: str, blocks: Sequence[Block]) -> str:
    return "\n\n".join([f"# {title}", *map(_markdown, blocks)]) + "\n"


def to_html(title: str, blocks: Sequence[Block]) -> str:
    body = "\n".join(map(_html, blocks))
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{html.escape(title)}</h1>\n{body}\n</html>\n"
    )


def _markdown(block: Block) -> str:
    match block:
        case Heading(text):
            return f"## {text}"
        case Text(text):
            return text
        case Code(text):
            return "\n".join(f"    {line}" for line in text.splitlines())
        case Table(head, rows):
            lines = [head, ["---"] * len(head), *rows]
            return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        case Picture(name, alt, _):
            return f"![{alt}]({name})"


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{_inline(text)}</h2>"
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Code(text):
            return f"<pre>{html.escape(text)}</pre>"
        case Table(head, rows):
            kinds = [' class="text"' if any(len(row[i]) > _LONG for row in rows) else "" for i in range(len(head))]
            first = "".join(f"<th{kind}>{_inline(cell)}</th>" for kind, cell in zip(kinds, head, strict=True))
            cells = [[f"<td{kind}>{_inline(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)] for row in rows]
            return f"<table><tr>{first}</tr>\n" + "".join(f"<tr>{''.join(row)}</tr>\n" for row in cells) + "</table>"
        case Picture(_, alt, png):
            source = base64.b64encode(png).decode()
            return f'<p><img alt="{html.escape(alt)}" src="data:image/png;base64,{source}"></p>'


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
