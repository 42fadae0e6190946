"""docs/vllm.md names fields that bodies have and flags that there are."""

import re
from pathlib import Path

import msgspec

from chairlift.config.options.resolve import OPTIONS
from chairlift.server.openai.requests import ChatRequest, CompletionRequest

PAGE = (Path(__file__).parents[2] / "docs" / "vllm.md").read_text()


def column(heading: str, number: int) -> str:
    """The cells of a section's table in one column."""
    [section] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return "\n".join(row.split("|")[number] for row in section.splitlines() if row.startswith("| `"))


def test_fields_are_read() -> None:
    known = {field.encode_name for body in (ChatRequest, CompletionRequest) for field in msgspec.structs.fields(body)}
    named = set(re.findall(r"`(\w+)`", column("Clients", 1)))
    assert named and named <= known


def test_options_are_there() -> None:
    flags = {option.flag.removeprefix("--") for option in OPTIONS}
    named = re.findall(r"--(?:no-)?([a-z-]+)", column("Options", 2))
    assert named and set(named) <= flags
