"""What a node must have in common with the fleet it joins, and what it is told where it has not."""

import hashlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from chairlift.config.version import VERSION
from chairlift.core.limits import Limits
from chairlift.core.routing.prefixes import span_of
from chairlift.live.nodes.messages import MemberEngine, Tell
from chairlift.live.wire.messages import EngineInfo
from chairlift.models.spec import ModelConfig

REASONS = ("version", "model", "config", "fingerprint", "block_size", "memory")  # to refuse a node


class Refusal(NamedTuple):
    reason: str
    message: str  # with the way out


class EngineTerms(msgspec.Struct, frozen=True):
    """Of the fleet's first engine."""

    fingerprint: str | None
    span: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Terms:
    model: str
    config: str  # a digest, as in `Tell`
    is_exact: bool
    engines: EngineTerms | None = None  # None: there was none yet

    def after(self, engine: EngineTerms) -> "Terms":
        """With what the first engine brings; later ones change nothing."""
        return self if self.engines is not None else replace(self, engines=engine)

    def refusal(self, tell: Tell) -> Refusal | None:
        """Why a node may not join, and the way out; None: it may."""
        if tell.version != VERSION:
            return Refusal(
                "version",
                f"it runs chairlift {tell.version} and the server {VERSION}: install the same version on both",
            )
        if tell.model != self.model:
            return Refusal(
                "model",
                f"it has the model {tell.model} and the server {self.model}: start both with the same --model",
            )
        if tell.config != self.config:
            return Refusal(
                "config",
                f"its {tell.model} is described otherwise than the server's: copy the same model folder to both",
            )
        return next(filter(None, map(self._engine_refusal, tell.engines)), None)

    def _engine_refusal(self, engine: MemberEngine) -> Refusal | None:
        if self.is_exact and engine.fingerprint is None:
            return Refusal("fingerprint", "the server is exact and it is not: start it with --exact")
        want = self.engines
        if want is None:
            return None
        if self.is_exact and engine.fingerprint != want.fingerprint:
            return Refusal(
                "fingerprint",
                f"its fingerprint is {engine.fingerprint} and the server's {want.fingerprint}, so its answers would "
                "have other bits: give both the same weights, options, kind of processor, or leave --exact out",
            )
        if engine.span != want.span:
            return Refusal("block_size", "its KV blocks have another size: start it with the server's --block-size")
        if engine.max_tokens < want.max_tokens:
            return Refusal(
                "memory",
                f"it has memory for requests of {engine.max_tokens} tokens and the server takes up to "
                f"{want.max_tokens}: give it more (--kv-memory, --memory), or the server --max-model-len "
                f"{engine.max_tokens}",
            )
        return None


def max_tokens_of(limits: Limits) -> int:
    return min(limits.max_model_len, limits.max_pool_tokens)


def terms_of(info: EngineInfo) -> EngineTerms:
    return EngineTerms(info.fingerprint, span_of(info.limits.block_size), max_tokens_of(info.limits))


def digest_of(config: ModelConfig) -> str:
    """Of all that is computed; what was only remarked on is left out."""
    return hashlib.sha256(repr(replace(config, warnings=())).encode()).hexdigest()[:16]
