"""What every route may use: names, tokenizer, the engine's client and the load. Made once; only settings may change."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from starlette.requests import Request

from chairlift.config.model import ModelConfig
from chairlift.config.settings import Settings
from chairlift.core.errors import EngineUnavailable
from chairlift.live.messages import EngineInfo
from chairlift.server.book import Book
from chairlift.server.load import Load
from chairlift.server.port import EngineClient
from chairlift.text.tokenizer import Tokenizer

_LONG_TEXT = 16_384  # characters; from here on tokenizing would hold up the other requests of this front end


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    load: Load
    model_names: tuple[str, ...]  # the first is the one answers carry when a request names none
    model_config: ModelConfig
    tokenizer: Tokenizer
    client: EngineClient
    created: int  # when the server began, in seconds since 1970; shown as the model's creation time too
    version: str
    book: Book = field(default_factory=Book)  # where requests are written down
    engine_silent_s: Callable[[], float] = lambda: 0.0  # for how long it has shown no sign of life

    @property
    def settings(self) -> Settings:
        """Those in force now."""
        return self.load.settings

    @property
    def why_not_ready(self) -> str | None:
        """None when requests would be answered now, by any front end, not just this one."""
        if not (self.client.is_ready and self.load.is_complete):
            return "the engine is not ready"
        silent_s, timeout_s = self.engine_silent_s(), self.settings.engine_timeout
        if timeout_s and silent_s > timeout_s / 2:
            return f"no sign of life from the engine for {silent_s:.0f} s; after {timeout_s:g} s another is started"
        return None

    @property
    def engine(self) -> EngineInfo:
        """What the running engine said of itself; raises `EngineUnavailable` while there is none."""
        info = self.client.info
        if info is None:
            raise EngineUnavailable("the engine is not ready; try again later")
        return info

    async def encode(self, text: str, add_special: bool) -> list[int]:
        [ids] = await self.encode_all([text], add_special)
        return ids

    async def encode_all(self, texts: Sequence[str], add_special: bool) -> list[list[int]]:
        if sum(map(len, texts)) < _LONG_TEXT:
            return [self.tokenizer.encode(text, add_special) for text in texts]
        encode = partial(self.tokenizer.encode, add_special=add_special, beside_others=True)
        return await asyncio.to_thread(lambda: [encode(text) for text in texts])


def context_of(request: Request) -> ServerContext:
    context: ServerContext = request.app.state.context
    return context
