"""Chairlift: an LLM inference server. `LLM`, `AsyncLLM`, `LLMEngine` and `SamplingParams` are the Python interface."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chairlift.async_llm import AsyncLLM as AsyncLLM
    from chairlift.config.version import VERSION as __version__
    from chairlift.core.errors import ChairliftError as ChairliftError
    from chairlift.core.errors import EngineUnavailable as EngineUnavailable
    from chairlift.core.errors import InvalidConfig as InvalidConfig
    from chairlift.core.errors import InvalidRequest as InvalidRequest
    from chairlift.core.param_types import RequestOutputKind as RequestOutputKind
    from chairlift.core.params import SamplingParams as SamplingParams
    from chairlift.core.structured import Structured as Structured
    from chairlift.core.structured import StructuredOutputsParams as StructuredOutputsParams
    from chairlift.engine_args import AsyncEngineArgs as AsyncEngineArgs
    from chairlift.engine_args import EngineArgs as EngineArgs
    from chairlift.llm import LLM as LLM
    from chairlift.llm import BeamSearchParams as BeamSearchParams
    from chairlift.llm_engine import LLMEngine as LLMEngine
    from chairlift.local.model import Stats as Stats
    from chairlift.local.outputs import BeamSearchOutput as BeamSearchOutput
    from chairlift.local.outputs import BeamSearchSequence as BeamSearchSequence
    from chairlift.local.outputs import CompletionOutput as CompletionOutput
    from chairlift.local.outputs import EmbeddingOutput as EmbeddingOutput
    from chairlift.local.outputs import EmbeddingRequestOutput as EmbeddingRequestOutput
    from chairlift.local.outputs import Logprob as Logprob
    from chairlift.local.outputs import RequestMetrics as RequestMetrics
    from chairlift.local.outputs import RequestOutput as RequestOutput
    from chairlift.local.outputs import ScoringOutput as ScoringOutput
    from chairlift.local.outputs import ScoringRequestOutput as ScoringRequestOutput
    from chairlift.lora.request import LoRARequest as LoRARequest
    from chairlift.text.prompt_forms import TextPrompt as TextPrompt
    from chairlift.text.prompt_forms import TokensPrompt as TokensPrompt
    from chairlift.text.responses.reading.events import Content as Content
    from chairlift.text.responses.reading.events import Reasoning as Reasoning
    from chairlift.text.responses.reading.gathered import ToolCall as ToolCall

# Loaded on first use: importing the package costs nothing.
_MODULES = {
    "async_llm": ("AsyncLLM",),
    "core.errors": ("ChairliftError", "EngineUnavailable", "InvalidConfig", "InvalidRequest"),
    "core.param_types": ("RequestOutputKind",),
    "core.params": ("SamplingParams",),
    "core.structured": ("Structured", "StructuredOutputsParams"),
    "llm": ("LLM", "BeamSearchParams"),
    "llm_engine": ("LLMEngine",),
    "engine_args": ("AsyncEngineArgs", "EngineArgs"),
    "local.model": ("Stats",),
    "local.outputs": (
        "BeamSearchOutput",
        "BeamSearchSequence",
        "CompletionOutput",
        "EmbeddingOutput",
        "EmbeddingRequestOutput",
        "Logprob",
        "RequestMetrics",
        "RequestOutput",
        "ScoringOutput",
        "ScoringRequestOutput",
    ),
    "lora.request": ("LoRARequest",),
    "text.prompt_forms": ("TextPrompt", "TokensPrompt"),
    "text.responses.reading.events": ("Content", "Reasoning"),
    "text.responses.reading.gathered": ("ToolCall",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = ["__version__", *_PLACES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("chairlift.config.version").VERSION
    if name in _PLACES:
        return getattr(import_module(f"chairlift.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
