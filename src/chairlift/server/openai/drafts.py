"""A message of a chat body while it is put together from the pieces of another body."""

from dataclasses import dataclass, field
from typing import Any

from chairlift.server.openai.requests import Message


@dataclass(slots=True)
class Draft:
    """Texts of the assistant are joined as they are, those of others, and thoughts, by a line break."""

    role: str
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    answers: str | None = None  # the id of the call that it is the result of

    def message(self) -> Message:
        return Message(
            role=self.role,
            content=("" if self.role == "assistant" else "\n").join(self.texts),
            reasoning_content="\n".join(self.thoughts) or None,
            tool_calls=self.calls or None,
            tool_call_id=self.answers,
        )
