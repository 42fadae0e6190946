"""A report page of headings, paragraphs, tables, tiles and charts, as self-contained HTML or Markdown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chairlift.lab.report.frame import Chart
from chairlift.lab.report.markup import Markup, joined, tag
from chairlift.lab.report.style import PAGE

_LONG = 24  # characters: a column with such a cell is aligned left


@dataclass(frozen=True, slots=True)
class Heading:
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str  # words in backquotes are code
    role: str = ""  # about: the page's subject; warn: a warning


@dataclass(frozen=True, slots=True)
class Code:
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The main figures, each above its name."""

    figures: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Charts:
    charts: Sequence[Chart]
    name: str = ""  # of the picture beside a Markdown page
    alt: str = ""


Element = Heading | Paragraph | Code | Table | Tiles | Charts


def to_html(title: str, blocks: Sequence[Element]) -> str:
    head = tag("head", Markup('<meta charset="utf-8">'), tag("title", title),
               Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
               tag("style", Markup(PAGE)))  # fmt: skip
    body = (joined(_html(block), Markup("\n")) for block in blocks)
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('h1', title), *body), lang='en')}\n"


def to_markdown(title: str, blocks: Sequence[Element]) -> str:
    return "\n\n".join([f"# {title}", *map(_markdown, blocks)]) + "\n"


def _html(block: Element) -> Markup:
    match block:
        case Heading(text):
            return tag("h2", _inline(text))
        case Paragraph(text, role):
            return tag("p", _inline(text), class_=role)
        case Code(text):
            return tag("pre", text)
        case Table(head, rows):
            kinds = ["words" if any(len(row[i]) > _LONG for row in rows) else "" for i in range(len(head))]
            return tag("table", _row("th", head, kinds), *(_row("td", row, kinds) for row in rows))
        case Tiles(figures):
            return tag(
                "div", *(tag("div", tag("b", value), tag("span", name)) for value, name in figures), class_="tiles"
            )
        case Charts(charts):
            return tag("div", *(chart.to_svg() for chart in charts), class_="charts")


def _row(name: str, cells: Sequence[str], kinds: Sequence[str]) -> Markup:
    each = (tag(name, _inline(cell), class_=kind) for cell, kind in zip(cells, kinds, strict=True))
    return joined(tag("tr", *each), Markup("\n"))


def _inline(text: str) -> Markup:
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", joined(text)))


def _markdown(block: Element) -> str:
    match block:
        case Heading(text):
            return f"## {text}"
        case Paragraph(text):
            return text
        case Code(text):
            return "\n".join(f"    {line}" for line in text.splitlines())
        case Table(head, rows):
            lines = [head, ["---"] * len(head), *rows]
            return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        case Tiles(figures):
            return "\n".join(f"- {name}: {value}" for value, name in figures)
        case Charts(_, name, alt):
            return f"![{alt}]({name})"


def write_files(folder: Path, contents: Mapping[str, str]) -> list[Path]:
    """Into a folder that is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    return [folder / name for name in contents]
