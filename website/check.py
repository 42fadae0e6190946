"""What is wrong with a built site: links and anchors that lead nowhere, and what a browser would fetch from elsewhere.

Knows nothing of Markdown or of the program that made the pages.
"""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
_MET = {"canonical", "edit", "next", "prev"}  # links of a head that no browser fetches


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.ids |= {named[name] for name in ("id", "name") if name in named}
        for name in ("href", "src"):
            if name in named and named.get("rel") not in _MET:
                self.links.append(named[name])
                if (tag, name) in _FETCHED:
                    self.fetched.append(named[name])


@cache
def _read(path: Path) -> _Page:
    return _Page(path.read_text())


def faults(site: Path) -> list[str]:
    found = []
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        name, page = path.relative_to(site), _read(path)
        found += [f"{name}: fetches {link}" for link in page.fetched if urlsplit(link).netloc]
        found += [f"{name}: {link} leads nowhere" for link in page.links if not _leads(path, link)]
    return found


def _leads(path: Path, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return not parts.fragment or target.suffix != ".html" or unquote(parts.fragment) in _read(target).ids | {"__top"}
