"""Recorded answers of families that a server can be made to give, a character a token."""

from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.tool_worlds import tool_world
from unit.text.responses.streams import STREAMS, Recorded

_FAMILIES = ("hermes", "llama3-json", "mistral", "mistral-list", "gpt-oss", "qwen3-coder")
each_recorded = pytest.mark.parametrize(
    "recorded",
    [each for each in STREAMS if each.family in _FAMILIES],
    ids=lambda each: f"{each.family}: {each.shows}",
)


def world_and_body(recorded: Recorded) -> tuple[HttpWorld, dict[str, Any]]:
    """A server that gives the answer, and what a body says for its prompt to leave reasoning open."""
    body = {"chat_template_kwargs": {"is_open": True}} if recorded.in_reasoning else {}
    return tool_world(recorded.family, recorded.text), body
