"""The repository's Markdown as pages of the site: which file becomes which page, and links that lead there.

Always: a link of a page leads to another page, a copied file or another site. What the repository has and the site
does not (sources, manifests) becomes a page that shows it; a folder's name stays text.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
_OUTSIDE = {path: path.name.lower() for path in sorted(ROOT.glob("*.md"))} | {
    INDEX: "all-pages.md",
    ROOT / "benchmarks" / "README.md": "benchmarks.md",
}
_LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".sh": "sh", ".c": "c", ".svg": "xml"}


def page_of(path: Path) -> str:
    """Where a file of the repository lies in the site's sources."""
    if path in _OUTSIDE:
        return _OUTSIDE[path]
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"files/{path.relative_to(ROOT).as_posix()}.md"


def write_pages(folder: Path) -> None:
    """The site's sources, in a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    shown: set[Path] = set()
    for path in (*sorted(path for path in DOCS.rglob("*") if path.is_file()), *_OUTSIDE):
        target = folder / page_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text, linked = with_links(path, path.read_text())
            shown |= linked
            target.write_text(text)
        else:
            shutil.copyfile(path, target)
    for path in sorted(shown):
        target = folder / page_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_source(path))


def with_links(page: Path, text: str) -> tuple[str, set[Path]]:
    """The text with its links as the site has them, and the files that have to be shown for them."""
    shown: set[Path] = set()

    def rewritten(prose: str) -> str:
        return _LINK.sub(lambda link: _rewritten(page, link[1], shown), prose)

    return _unlinked_folders(page, outside_fences(text, rewritten)), shown


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join((*parts, change(text[end:])))


def _rewritten(page: Path, link: str, shown: set[Path]) -> str:
    if re.match(r"\w+:|#", link):
        return link
    path, hash_, anchor = link.partition("#")
    target = (page.parent / unquote(path)).resolve()
    if not target.is_file():
        return link
    if not target.is_relative_to(DOCS) and target not in _OUTSIDE:
        shown.add(target)
    start = Path(page_of(page)).parent
    return Path(os.path.relpath(page_of(target), start)).as_posix() + hash_ + anchor


def _unlinked_folders(page: Path, text: str) -> str:
    def plain(link: re.Match[str]) -> str:
        is_folder = not re.match(r"\w+:|#", link[2]) and (page.parent / unquote(link[2])).is_dir()
        return link[1] if is_folder else link[0]

    return outside_fences(text, lambda prose: re.sub(r"(?<!!)\[([^\]]+)\]\(([^()\s]+)\)", plain, prose))


def _source(path: Path) -> str:
    """A page that shows a file; the search leaves it out."""
    name, language = path.relative_to(ROOT).as_posix(), _LANGUAGES.get(path.suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n````{language}\n{path.read_text()}\n````\n"
