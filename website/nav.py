"""The site's navigation, made of the tables in docs/README.md: its sections, in its order.

Always: every row's page is in it once. A link's text is the page's name there; after a note's number comes its title.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pages import INDEX, page_of

Nav = list[dict[str, Any]]
_ROW_LINK = re.compile(r"\[([^\]]+)\]\(([^()\s]+)\)")


def navigation() -> Nav:
    """By section: its pages, or its parts and theirs."""
    sections: Nav = []
    place: Nav = []
    for line in INDEX.read_text().splitlines():
        if line.startswith("## "):
            place = _opened(sections, line[3:])
        elif line.startswith("### "):
            place = _opened(sections[-1][_only(sections[-1])], line[4:])
        elif line.startswith("| ["):
            place += [_entry(text, link) for text, link in _ROW_LINK.findall(line.split(" | ")[0])]
    return sections


def _opened(sections: Nav, name: str) -> Nav:
    pages: Nav = []
    sections.append({name: pages})
    return pages


def _only(entry: dict[str, Any]) -> str:
    [name] = entry
    return name


def _entry(text: str, link: str) -> dict[str, str]:
    path = (INDEX.parent / unquote(link)).resolve()
    title = text
    if text.isdigit():
        title = f"{text} {_heading(path)}"
    elif text.endswith(".md"):
        title = _heading(path)
    return {title: page_of(path)}


def _heading(path: Path) -> str:
    """A page's first heading, without the number that some notes begin with."""
    first = path.read_text().partition("\n")[0]
    return re.sub(r"^# (?:\d{4} )?", "", first).replace("`", "")
