"""Chairlift: an LLM inference server. `LLM` and `SamplingParams` are the Python interface."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chairlift.llm import LLM as LLM
    from chairlift.llm import SamplingParams as SamplingParams


def __getattr__(name: str) -> Any:
    if name in ("LLM", "SamplingParams"):  # loaded on first use: importing the package costs nothing
        from chairlift import llm

        return getattr(llm, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
