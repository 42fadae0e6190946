"""A client of a live engine in a test, and a request of it with what it heard."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from chairlift.core.params import SamplingParams
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.messages import Output
from fakes.patience import until
from fakes.submits import MANY


@asynccontextmanager
async def connected(address: str, name: str = "front-end") -> AsyncIterator[EngineClient]:
    async with joined([address], name) as client:
        yield client


@asynccontextmanager
async def joined(addresses: list[str], name: str, **more: Any) -> AsyncIterator[EngineClient]:
    """A client of several replicas, once all are there."""
    client = EngineClient(addresses, name, **more)
    running = asyncio.ensure_future(client.replicas.run())
    try:
        await until(lambda: all(place.link.is_ready for place in client.replicas._places))
        yield client
    finally:
        running.cancel()
        await asyncio.wait([running])


class Heard:
    """Submits a request and keeps what it hears of it."""

    def __init__(self, client: EngineClient, prompt: list[int], params: SamplingParams) -> None:
        self.outputs: list[Output] = []
        self.error: Exception | None = None
        self.generation = client.submit(prompt, params, params.max_tokens or MANY, self)
        self._num_open = params.num_samples

    def put(self, output: Output) -> None:
        self.outputs.append(output)
        self._num_open -= output.finish is not None

    def fail(self, error: Exception) -> None:
        self.error = error

    async def any(self) -> None:
        await until(lambda: self.outputs)

    async def all(self) -> list[Output]:
        await until(lambda: not self._num_open or self.error)
        if self.error is not None:
            raise self.error
        return self.outputs

    async def tokens(self, sample: int = 0) -> list[int]:
        return [o.token for o in await self.all() if o.token is not None and o.sample == sample]
