"""Recorded answers of three formats, a character a token, for each dialect above the reader."""

from typing import Any

import pytest

from fakes.http_world import HttpWorld
from fakes.tool_worlds import tool_world
from unit.text.responses.streams import STREAMS, Recorded

# Of three formats: calls in JSON, by special tokens, in channels. The reader's tests have all formats.
_SHOWN = {
    "hermes": (
        "content only",
        "nothing",
        "several",
        "reasoning that the prompt opened",
        "text around",
        "cut before the name",
    ),
    "mistral": ("odd strings", "reasoning"),
    "gpt-oss": ("reasoning, preamble, call",),
}
each_recorded = pytest.mark.parametrize(
    "recorded",
    [each for each in STREAMS if each.shows in _SHOWN.get(each.family, ())],
    ids=lambda each: f"{each.family}: {each.shows}",
)


def world_and_body(recorded: Recorded) -> tuple[HttpWorld, dict[str, Any]]:
    """A server that gives the answer, and what a body says for its prompt to leave reasoning open."""
    body = {"chat_template_kwargs": {"is_open": True}} if recorded.in_reasoning else {}
    return tool_world(recorded.family, recorded.text), body
