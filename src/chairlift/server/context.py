"""What all routes share: names, tokenizer, the engine's client and the load. Made once; only settings may change."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from starlette.requests import Request

from chairlift.config.settings import Settings
from chairlift.core.errors import EngineUnavailable, InvalidConfig, InvalidRequest
from chairlift.core.limits import cache_bound, context_len
from chairlift.live.adapters.registry import Adapter, AdapterRegistry
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.messages import EngineInfo
from chairlift.models.spec import ModelConfig
from chairlift.server.admission.bounds import Load
from chairlift.server.admission.cost import Cost
from chairlift.server.encoder import Encoder, TokenLimit, Turns
from chairlift.server.request_log.log import RequestLog
from chairlift.text.embedding.texts import EmbeddingTexts
from chairlift.text.responses.templates.model_format import ModelFormat, format_of
from chairlift.text.structured.checker import StructuredChecker
from chairlift.text.tokenizer import Tokenizer

_SHOWN = 20  # names in an error


class UnknownModel(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    load: Load
    model_names: tuple[str, ...]  # the first is the default
    model_config: ModelConfig
    tokenizer: Tokenizer
    client: EngineClient
    created: int  # when the server began, in seconds since 1970; also shown as the model's creation time
    version: str
    adapters: AdapterRegistry | None = None  # None: requests may name none
    request_log: RequestLog = field(default_factory=RequestLog)
    engine_silent_s: Callable[[], float] = lambda: 0.0  # since its last sign of life
    encoder: Encoder = field(init=False)
    structured: StructuredChecker = field(init=False)
    shapes: Turns = field(init=False)  # in which shapes are checked
    files: Turns = field(init=False)  # in which adapters' files are read
    texts: EmbeddingTexts | None = field(init=False)  # of a model that makes vectors or scores; None: it makes text
    format: ModelFormat | None = field(init=False)  # of chat answers; None: the model has no chat template

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoder", Encoder(self.tokenizer))
        config = self.model_config
        object.__setattr__(self, "structured", StructuredChecker(self.tokenizer, config.vocab_size, config.eos_ids))
        object.__setattr__(self, "shapes", Turns("shapes"))
        object.__setattr__(self, "files", Turns("files"))
        texts = None if config.embedding is None else EmbeddingTexts.of(self.tokenizer, config.embedding)
        object.__setattr__(self, "texts", texts)
        object.__setattr__(self, "format", format_of(self.tokenizer, self.settings.tool_format))

    @property
    def settings(self) -> Settings:
        return self.load.settings

    @property
    def example(self) -> str:
        """What the model does, for a first request: embed, rerank, chat, or complete where it has no chat template."""
        if self.model_config.embedding is not None:
            return self.model_config.embedding.task
        return "complete" if self.format is None else "chat"

    @property
    def why_not_ready(self) -> str | None:
        """None when every front end would answer requests now."""
        if not (self.client.is_ready and self.load.is_complete):
            return "the engine is not ready"
        silent_s, timeout_s = self.engine_silent_s(), self.settings.engine_timeout
        if timeout_s and silent_s > timeout_s / 2:
            return f"no sign of life from the engine for {silent_s:.0f} s; after {timeout_s:g} s another is started"
        return None

    @property
    def engine(self) -> EngineInfo:
        """Raises `EngineUnavailable` while no engine runs."""
        info = self.client.info
        if info is None:
            raise EngineUnavailable("the engine is not ready; try again later")
        return info

    async def adapter(self, model: str | None, cost: Cost) -> Adapter | None:
        """The adapter that a request names; None: the model itself. Raises `UnknownModel`."""
        if model is None or model in self.model_names:
            return None
        found = await self.find_adapter(model, cost)
        if found is None:
            served = ", ".join((await self.names(cost))[:_SHOWN])
            raise UnknownModel(f"model: {model[:200]!r} is not served here; served: {served}")
        return found

    async def find_adapter(self, name: str, cost: Cost) -> Adapter | None:
        """Raises `InvalidRequest` where it is broken."""
        registry = self.adapters
        if registry is None or not registry.is_new(name):
            return None if registry is None else registry.known(name)
        try:
            return await self.files.do(partial(registry.find, name), cost)
        except InvalidConfig as error:
            raise InvalidRequest("model", str(error)) from None

    async def names(self, cost: Cost) -> list[str]:
        """The model's, then those of adapters."""
        return [*self.model_names, *(() if self.adapters is None else await self.files.do(self.adapters.names, cost))]

    def check_makes(self, is_text: bool) -> None:
        """Raises `InvalidRequest` where a route is for the other kind of model."""
        if is_text == (self.texts is None):
            return
        name = self.model_names[0]
        if self.texts is None:
            raise InvalidRequest("model", f"{name} makes text; start the server with --task embed for its vectors")
        routes = "/v1/rerank or /v1/score" if self.texts.config.makes_scores else "/v1/embeddings"
        what = "scores" if self.texts.config.makes_scores else "vectors"
        raise InvalidRequest("model", f"{name} makes {what} and no text; use {routes}")

    def prompt_limit(self, cost: Cost) -> TokenLimit:
        """Raises `EngineUnavailable`."""
        limits = self.engine.limits
        most = context_len(limits)
        return TokenLimit(most - 1, f"leave no room for output{cache_bound(limits)}", most, cost=cost)


def context_of(request: Request) -> ServerContext:
    context: ServerContext = request.app.state.context
    return context
