"""docs/coming-from-vllm.md names fields that bodies have."""

import re
from pathlib import Path

import msgspec

from chairlift.server.openai.requests import ChatRequest, CompletionRequest

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-vllm.md").read_text()


def test_fields_are_read() -> None:
    known = {field.encode_name for body in (ChatRequest, CompletionRequest) for field in msgspec.structs.fields(body)}
    [section] = re.findall(r"^## Clients\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    rows = [row.split("|") for row in section.splitlines() if row.startswith("| `")]
    cells = [row[1] for row in rows if "refused" not in row[2]]
    named = {field for cell in cells for field in re.findall(r"`(\w+)`", cell)}
    assert named and named <= known
