"""Writes the pages that follow from the code: python website/reference.py; with --check it only says what is outdated.

- docs/reference/options.md: the option table
- docs/reference/commands.md: the command line's parsers
- docs/reference/http-api.md: the OpenAPI document
- docs/coming-from-vllm.md and its kin, between marks: their options and metrics, and ours
- docs/models.md, between marks: the most downloaded models, and which of them are served
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from command_pages import commands_page, options_page
from downloaded import downloaded_table
from foreign_options import llama_cpp_options, sglang_options, vllm_bench_options, vllm_options, vllm_parsers
from http_page import http_page
from vllm_metrics import metrics_table

DOCS = Path(__file__).resolve().parents[1] / "docs"
_NOTE = "\n<!-- Made by website/reference.py (make reference); changes to it are lost. -->\n"
_PAGES: Mapping[str, Callable[[], str]] = {
    "reference/options.md": options_page,
    "reference/commands.md": commands_page,
    "reference/http-api.md": http_page,
}
_PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "coming-from-vllm.md": {
        "options": vllm_options,
        "parsers": vllm_parsers,
        "bench": vllm_bench_options,
        "metrics": metrics_table,
    },
    "coming-from-llama-cpp.md": {"options": llama_cpp_options},
    "coming-from-sglang.md": {"options": sglang_options},
    "models.md": {"downloaded": downloaded_table},
}


def made() -> dict[Path, str]:
    """What each page should hold."""
    pages = {DOCS / name: page() + _NOTE for name, page in _PAGES.items()}
    for name, parts in _PARTS.items():
        text = (DOCS / name).read_text()
        for part, content in parts.items():
            text = _with_part(text, part, content())
        pages[DOCS / name] = text
    return pages


def _with_part(text: str, part: str, content: str) -> str:
    """The text with what stands between the part's marks replaced."""
    first, last = f"<!-- made: {part} -->\n", "<!-- end -->"
    pattern = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    changed, count = pattern.subn(lambda _: f"{first}\n{content}\n{last}", text)
    if count != 1:
        raise SystemExit(f"there must be one {first.strip()} with an {last} after it, there are {count}")
    return changed


def outdated() -> list[Path]:
    return [path for path, text in made().items() if not path.is_file() or path.read_text() != text]


def main() -> int:
    stale = outdated()
    if "--check" not in sys.argv[1:]:
        for path, text in made().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        print(path.relative_to(DOCS.parent))
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
