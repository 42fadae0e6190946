"""The input of a response as the messages of a chat.

Always: calls, reasoning and a message of the assistant that stand together are one message of the chat; each message
knows the items that it came from, for errors that name them.
"""

from dataclasses import dataclass, field

from chairlift.core.errors import InvalidRequest
from chairlift.server.openai.requests import Message
from chairlift.server.openai.responses.custom import arguments_of
from chairlift.server.openai.responses.namespaces import joined
from chairlift.server.openai.responses.request import Item, Part
from chairlift.server.openai.translated import Draft

_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = ("input_text", "output_text", "text")
_KEPT = "this server keeps no responses; send the item itself (store: false makes most clients do so)"


@dataclass(slots=True)
class Messages:
    """`names`: places in the chat body, and the places of the input that they came from."""

    made: list[Message] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)  # items without effect
    _open: Draft | None = None  # a message of the assistant that items may still join

    def add_text(self, role: str, text: str, place: str) -> None:
        self.close()
        self.names[self._next] = self.names[f"{self._next}.content"] = place
        self.made.append(Message(role, text))

    def add(self, item: Item, place: str) -> None:
        match item.type:
            case "message":
                self._add_message(item, place)
            case "function_call":
                self._add_call(item, place, "arguments")
            case "custom_tool_call":
                self._add_call(item, place, "input")
            case "function_call_output" | "custom_tool_call_output":
                self._add_output(item, place)
            case "reasoning":
                self._add_reasoning(item, place)
            case "item_reference":
                raise InvalidRequest(f"{place}.id", _KEPT)
            case other:
                raise InvalidRequest(f"{place}.type", f"{other[:40]!r} is not supported; send messages and calls")

    def close(self) -> None:
        if self._open is not None:
            self.made.append(self._open.message())
            self._open = None

    @property
    def _next(self) -> str:
        return f"messages[{len(self.made)}]"

    def _add_message(self, item: Item, place: str) -> None:
        if item.role not in _ROLES:
            raise InvalidRequest(f"{place}.role", f"must be one of {', '.join(_ROLES)}, got {str(item.role)[:40]!r}")
        if item.content is None:
            raise InvalidRequest(f"{place}.content", "is required")
        text = _text(item.content, f"{place}.content")
        if item.role == "assistant":
            if self._open is not None and self._open.texts:  # messages in a row stay apart
                self.close()
            self._assistant(place).texts.append(text)
        else:
            self.close()
            self.names[self._next] = place
            self.made.append(Message(item.role, text))

    def _add_call(self, item: Item, place: str, given: str) -> None:
        """`given`: the field with what the tool was given."""
        for name in ("call_id", "name", given):
            if getattr(item, name) is None:
                raise InvalidRequest(f"{place}.{name}", f"is required of a {item.type}")
        calls = self._assistant(place).calls
        call = f"{self._next}.tool_calls[{len(calls)}]"
        self.names |= {call: place, f"{call}.id": f"{place}.call_id", f"{call}.function": place}
        name = joined(item.namespace, str(item.name))
        arguments = item.arguments if given == "arguments" else arguments_of(item.input or "")
        calls.append({"id": item.call_id, "function": {"name": name, "arguments": arguments}})

    def _add_output(self, item: Item, place: str) -> None:
        for name in ("call_id", "output"):
            if getattr(item, name) is None:
                raise InvalidRequest(f"{place}.{name}", f"is required of a {item.type}")
        self.close()
        self.names |= {self._next: place, f"{self._next}.tool_call_id": f"{place}.call_id"}
        self.made.append(Message("tool", _text(item.output or "", f"{place}.output"), tool_call_id=item.call_id))

    def _add_reasoning(self, item: Item, place: str) -> None:
        """Its text, or what a client kept of it."""
        parts = item.content or item.summary or ""
        text = parts if isinstance(parts, str) else "".join(part.text or "" for part in parts)
        if not text:
            self.ignored.append(place)
        else:
            self._assistant(place).thoughts.append(text)

    def _assistant(self, place: str) -> Draft:
        """The assistant's message that is open, or a new one."""
        if self._open is None:
            self._open = Draft("assistant")
            self.names[self._next] = place
        return self._open


def _text(content: str | list[Part], place: str) -> str:
    if isinstance(content, str):
        return content
    for index, part in enumerate(content):
        if part.type not in (*_TEXTS, "refusal"):
            raise InvalidRequest(f"{place}[{index}].type", f"{part.type[:40]!r} is not supported; send input_text")
        if part.text is None and part.refusal is None:
            raise InvalidRequest(f"{place}[{index}].text", "is required")
    return "".join(part.text or part.refusal or "" for part in content)
