"""vLLM's test files against our server: a plugin of pytest (`-p peers.vllm_plugin`)."""

import base64
import re
from typing import Any

import anthropic
import openai
import pytest

from peers.stand_in import Stubs, Tokenizer, free_port, launch, stop


class RemoteOpenAIServer:
    """As vLLM's tests know it."""

    DUMMY_API_KEY = "token-abc123"

    def __init__(self, model: str, vllm_serve_args: list[str], **_: Any) -> None:
        self.host, self.port = "127.0.0.1", free_port()
        self._process = launch([model, *_adapters(vllm_serve_args)], vllm_serve_args, self.port)

    def __enter__(self) -> "RemoteOpenAIServer":
        return self

    def __exit__(self, *_: Any) -> None:
        stop(self._process)

    @property
    def url_root(self) -> str:
        return f"http://{self.host}:{self.port}"

    def url_for(self, *parts: str) -> str:
        return f"{self.url_root}/{'/'.join(part.strip('/') for part in parts if part)}"

    def _given(self, path: str, given: dict[str, Any]) -> dict[str, Any]:
        own = {"base_url": self.url_for(path), "api_key": self.DUMMY_API_KEY, "max_retries": 0, "timeout": 600}
        return own | given

    def get_client(self, **given: Any) -> openai.OpenAI:
        return openai.OpenAI(**self._given("v1", given))

    def get_async_client(self, **given: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(**self._given("v1", given))

    def get_client_anthropic(self, **given: Any) -> anthropic.Anthropic:
        return anthropic.Anthropic(**self._given("", given))

    def get_async_client_anthropic(self, **given: Any) -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(**self._given("", given))


def _adapters(flags: list[str]) -> list[str]:
    """Their names; the model answers to them."""
    return [flag.partition("=")[0] for flag in flags if "-lora" in flag and not flag.startswith("--")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out what asks no server."""
    items[:] = [item for item in items if any(_ASKS.search(name) for name in getattr(item, "fixturenames", ()))]


_ASKS = re.compile("client|server")
_UTILS = {"RemoteOpenAIServer": RemoteOpenAIServer, "ROCM_EXTRA_ARGS": [], "ROCM_ENV_OVERRIDES": {}}
_GIVEN = {
    "tests.utils": _UTILS,
    "vllm.tokenizers": {"get_tokenizer": Tokenizer},
    "vllm.utils.serial_utils": {"EMBED_DTYPES": {"float32": None}, "ENDIANNESS": ["native", "big", "little"]},
    "pybase64": {name: getattr(base64, name) for name in ("b64decode", "b64encode")},
}
Stubs(["vllm", "tests.utils", "tests.models", "tests.conftest", "pybase64"], _GIVEN)
