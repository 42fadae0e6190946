"""The HTTP application over a scripted engine: in process, or on a real port for streams and disconnects.

It is no `worlds.world.World`: there are no scheduler and no steps in it.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import uvloop

from chairlift.config.settings import LlmServing
from chairlift.core.limits import Limits
from chairlift.live.adapters.registry import AdapterRegistry
from chairlift.models.embedding.declared import EmbeddingConfig
from chairlift.models.spec import ModelConfig, SamplingDefaults, uniform_model
from chairlift.server.app import create_app
from chairlift.server.context import ServerContext
from chairlift.server.request_log.log import RequestLog
from chairlift.server.sockets.run import serve
from chairlift.text.tokenizer import Tokenizer
from fakes.connection import with_connection
from fakes.loads import make_load
from fakes.patience import HANG_S, wait_until
from fakes.scripted_client import ScriptedClient
from fakes.small_tokenizer import small_tokenizer


class HttpWorld:
    """`says` is the text that every sample answers with, followed by the end token; `defaults` are what the model's
    makers suggest for sampling; `room` is the longest prompt plus output in tokens."""

    def __init__(
        self,
        says: str = "Hello world, hello there.",
        *,
        defaults: dict[str, Any] | None = None,
        request_log: RequestLog | None = None,
        silent_s: float = 0.0,
        tokenizer: Tokenizer | None = None,
        room: int = 512,
        max_running: int = 8,
        adapters: AdapterRegistry | None = None,
        embedding: EmbeddingConfig | None = None,
        **settings: Any,
    ) -> None:
        self.tokenizer = tokenizer or small_tokenizer()
        self.eos_id = self.tokenizer.eos_id or 0
        self.answer = [*self.tokenizer.encode(says, add_special=False), self.eos_id]
        limits = Limits(
            vocab_size=self.tokenizer.vocab_size,
            max_model_len=room,
            block_size=4,
            num_blocks=100 if room == 512 else room // 4,
            max_running=max_running,
            max_step_tokens=max(64, max_running),
        )
        self.client = ScriptedClient(lambda prompt, sample: self.answer, self.eos_id, limits)
        self.context = ServerContext(
            load=make_load(**{"max_body_bytes": 20_000, "host": "0.0.0.0", **settings}),  # any name is taken
            model_names=("small", "org/small"),
            model_config=replace(
                _config(self.tokenizer.vocab_size, self.eos_id, SamplingDefaults(**defaults or {})), embedding=embedding
            ),
            tokenizer=self.tokenizer,
            client=self.client,
            created=1_700_000_000,
            version="1.2.3",
            adapters=adapters,
            request_log=request_log or RequestLog(),
            engine_silent_s=lambda: silent_s,
        )
        self.app = create_app(self.context)

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(with_connection(self.app)), base_url="http://test")

    async def post(self, path: str, body: object) -> httpx.Response:
        async with self.http() as http:
            return await http.post(path, json=body)

    async def get(self, path: str) -> httpx.Response:
        async with self.http() as http:
            return await http.get(path)

    @contextmanager
    def on_a_port(self, room: int | None = None) -> Iterator[str]:
        """Serve in a thread; gives the base URL. `room`: bytes that wait for a slow client outside."""
        sock = socket.socket()
        if room is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        started = threading.Event()
        ends: list[Callable[[], object]] = []

        async def run() -> None:
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            ends.append(lambda: loop.call_soon_threadsafe(stop.set))
            started.set()
            await serve([(self.app, sock)], self.context.load, stop=stop)

        thread = threading.Thread(target=lambda: uvloop.run(run()))
        thread.start()
        started.wait(HANG_S)
        wait_until(lambda: _is_open(port))
        try:
            yield f"{'http' if self.context.settings.tls_cert is None else 'https'}://127.0.0.1:{port}"
        finally:
            ends[0]()
            thread.join(HANG_S)
            sock.close()
            assert not thread.is_alive(), "the server does not stop"


def with_compat(**facts: Any) -> HttpWorld:
    return HttpWorld(compat=LlmServing(**facts))


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=HANG_S).close()
    except OSError:
        return False
    return True


def _config(vocab_size: int, eos_id: int, sampling: SamplingDefaults) -> ModelConfig:
    return uniform_model(
        architecture="LlamaForCausalLM",
        hidden_size=8,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        intermediate_size=8,
        vocab_size=vocab_size,
        max_model_len=512,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        eos_ids=(eos_id,),
        sampling=sampling,
    )
