"""The commands and examples that README and docs show: blocks of code, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# The changelog shows what was there on its day; results are made by hand, on the machines that they name.
PAGES = sorted(
    [page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"]
    + [page for page in (ROOT / "docs").rglob("*.md") if "results" not in page.parts]
)
_PROGRAMS = (
    "chairlift", "curl", "make", "pip", "python", "podman", "docker", "helm", "kubectl", "ray", "sudo", "kill",
    "source", "cibuildwheel", "pytest", "echo", "export", "uv", "git", "twine",
)  # fmt: skip
_PROMPT = re.compile(r"^\w?\$ ")
_ASSIGNMENTS = re.compile(r"^(?:[A-Z_]+=\S+ )+")


class Block(NamedTuple):
    page: Path
    line: int
    language: str  # of a fence; empty for indented lines
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Command(NamedTuple):
    block: Block
    text: str  # without comments, prompt, folder and assignments before it

    @property
    def words(self) -> list[str]:
        """Without the file that its output goes to."""
        return shlex.split(self.text.partition(" > ")[0])


def blocks(page: Path) -> Iterator[Block]:
    """Fenced blocks, and indented ones after an empty line."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        first, line = number, lines[number]
        if line.startswith("```"):
            number = next(n for n in range(first + 1, len(lines)) if lines[n].startswith("```"))
            yield Block(page, first + 1, line.strip("`"), "\n".join(lines[first + 1 : number]))
        elif line.startswith("    ") and (not first or not lines[first - 1].strip()) and not _in_list(lines, first):
            while number + 1 < len(lines) and (lines[number + 1].startswith("    ") or not lines[number + 1].strip()):
                number += 1
            yield Block(page, first + 1, "", "\n".join(each[4:] for each in lines[first : number + 1]).strip())
        number += 1


def _in_list(lines: list[str], number: int) -> bool:
    """Whether an indented line goes on with an item of a list."""
    before = next((line for line in reversed(lines[:number]) if line and not line.startswith(" ")), "")
    return before.startswith(("- ", "1. ")) and lines[number - 1].startswith(" ")


def commands(block: Block) -> Iterator[Command]:
    """The lines that are commands; what they print is none."""
    if block.language not in ("", "sh", "bash", "console"):
        return
    for line in block.text.replace("\\\n", " ").splitlines():
        text = _ASSIGNMENTS.sub("", _PROMPT.sub("", line.strip())).removeprefix(".venv/bin/")
        if text.split(" ")[0] in _PROGRAMS:
            yield Command(block, _without_comment(text).removesuffix("&").strip())


def _without_comment(text: str) -> str:
    return re.split(r"\s#\s", text)[0]


def all_commands() -> list[Command]:
    return [command for page in PAGES for block in blocks(page) for command in commands(block)]


def inline_commands() -> Iterator[tuple[str, str]]:
    """Place and text of the commands that stand in sentences."""
    for page in PAGES:
        for found in re.finditer(r"`(chairlift [a-z][a-z-]*[^`]*)`", page.read_text()):
            yield f"{page.relative_to(ROOT)}", " ".join(found[1].split())
