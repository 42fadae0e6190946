"""Reads an OpenAI event stream the way its clients do."""

import json
from typing import Any


def events(body: str) -> list[Any]:
    """The data of each event, the closing [DONE] as text."""
    parts = body.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [part[6:] if part == "data: [DONE]" else json.loads(part[6:]) for part in parts]
