"""The server under load: its address, its API, and the bytes of a request to it.

Always: requests ask for streamed, greedy answers of exactly the workload's lengths.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from chairlift.core.errors import InvalidConfig
from chairlift.lab.workload.item import Item, Message

Prompt = str | Sequence[int] | Sequence[Message]
_encode = msgspec.json.Encoder().encode


class Api(enum.StrEnum):
    COMPLETIONS = "completions"
    CHAT = "chat"
    LLM_SERVING = "llm-serving"


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    is_tls: bool = False
    prefix: str = ""  # path before the routes

    @classmethod
    def parse(cls, url: str) -> "Address":
        """`http://host:port[/prefix]`; a final `/v1` is dropped, since the routes have it."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
        except ValueError as error:
            raise InvalidConfig(f"--url {url!r} is not an address: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise InvalidConfig(f"--url must be an address such as http://127.0.0.1:8000, got {url!r}")
        is_tls = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if is_tls else 80), is_tls, prefix)

    @property
    def netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"http{'s' * self.is_tls}://{self.netloc}{self.prefix}"


@dataclass(frozen=True, slots=True)
class TargetServer:
    address: Address
    api: Api
    model: str
    api_key: str = ""
    ignores_eos: bool = True  # sends ignore_eos, which a server may refuse

    @property
    def route(self) -> str:
        routes = {
            Api.COMPLETIONS: "/v1/completions",
            Api.CHAT: "/v1/chat/completions",
            Api.LLM_SERVING: f"/models/{quote(self.model, safe='')}/generate_stream",
        }
        return routes[self.api]

    @property
    def url(self) -> str:
        return f"{self.address}{self.route}"

    def request(self, prompt: Prompt, item: Item) -> bytes:
        """A whole HTTP request; the connection may be reused."""
        body = self._llm_serving(prompt, item) if self.api is Api.LLM_SERVING else self._openai(prompt, item)
        content = _encode(body)
        key = f"Authorization: Bearer {self.api_key}\r\n" if self.api_key else ""
        head = (
            f"POST {self.address.prefix}{self.route} HTTP/1.1\r\nHost: {self.address.netloc}\r\n{key}"
            f"Accept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    def _openai(self, prompt: Prompt, item: Item) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "max_tokens": item.output_tokens, "temperature": 0.0}
        if self.api is Api.CHAT:
            body["messages"] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        else:
            body["prompt"] = prompt
        if self.ignores_eos:
            body["ignore_eos"] = True
        return body | {"stream": True, "stream_options": {"include_usage": True}} | item.attributes.given

    def _llm_serving(self, prompt: Prompt, item: Item) -> dict[str, Any]:
        parameters = {"max_new_tokens": item.output_tokens, "do_sample": False, "return_full_text": True}
        return {"inputs": prompt, "parameters": parameters}
