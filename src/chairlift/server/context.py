"""What every route may use: names, tokenizer, the engine's client and the load. Made once; only settings may change."""

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request

from chairlift.config.model import ModelConfig
from chairlift.config.settings import Settings
from chairlift.core.errors import EngineUnavailable
from chairlift.core.limits import tightest_limit
from chairlift.live.wire.client import EngineClient
from chairlift.live.wire.messages import EngineInfo
from chairlift.server.admission.bounds import Load
from chairlift.server.encoder import Encoder, TokenLimit
from chairlift.server.request_log.log import RequestLog
from chairlift.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    load: Load
    model_names: tuple[str, ...]  # the first is the one answers carry when a request names none
    model_config: ModelConfig
    tokenizer: Tokenizer
    client: EngineClient
    created: int  # when the server began, in seconds since 1970; shown as the model's creation time too
    version: str
    request_log: RequestLog = field(default_factory=RequestLog)  # where requests are written down
    engine_silent_s: Callable[[], float] = lambda: 0.0  # for how long it has shown no sign of life
    encoder: Encoder = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoder", Encoder(self.tokenizer))

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

    def prompt_limit(self) -> TokenLimit:
        """Of the prompts of a request; raises `EngineUnavailable`."""
        limits = self.engine.limits
        max_tokens = min(limits.max_model_len, limits.max_pool_tokens + 1) - 1
        return TokenLimit(max_tokens, f"leave no room for output in {tightest_limit(limits)}")


def context_of(request: Request) -> ServerContext:
    context: ServerContext = request.app.state.context
    return context
