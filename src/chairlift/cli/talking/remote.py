"""Chat with a server, by OpenAI's API."""

import json
from collections.abc import Generator, Iterator
from typing import Any

from chairlift.core.errors import ChairliftError
from chairlift.lab.bench.answer import message_of
from chairlift.lab.bench.probe import answering, find_target
from chairlift.lab.bench.target import Address, Api
from chairlift.text.responses.reading.events import Content, Reasoning
from chairlift.text.responses.reading.gathered import Piece

_TIMEOUT_S = 600.0  # between two tokens
_DATA = b"data:"


class RemoteChat:
    def __init__(self, url: str, model: str | None, api_key: str) -> None:
        """`model`: None: the server's first. Raises `InvalidConfig` where there is no such server."""
        target = find_target(Address.parse(url), Api.CHAT, model, api_key, False)
        self._address = target.address
        self.model = target.model
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def stream_chat(self, messages: list[dict[str, str]], changes: dict[str, Any]) -> Generator[Piece, None, None]:
        body = json.dumps({"model": self.model, "messages": messages, "stream": True, **changes}).encode()
        path = "/v1/chat/completions"
        with answering(self._address, "POST", path, self._headers, body, _TIMEOUT_S) as answer:
            if answer.status != 200:
                raise ChairliftError(message_of(_decoded(answer.read(1 << 20))))
            for event in _events(answer):
                if "error" in event:
                    raise ChairliftError(message_of(event))
                for choice in event.get("choices") or ():
                    yield from _pieces(choice.get("delta") or {})


def _events(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith(_DATA):
            event = _decoded(line.removeprefix(_DATA).strip())
            if isinstance(event, dict):
                yield event


def _pieces(delta: dict[str, Any]) -> Iterator[Piece]:
    for field in ("reasoning_content", "reasoning"):
        if delta.get(field):
            yield Reasoning(delta[field])
            break
    if delta.get("content"):
        yield Content(delta["content"])


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
