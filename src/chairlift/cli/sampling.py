"""Sampling flags shared by `chat` and `generate`; what is not given comes from the model's own suggestions."""

import argparse
from typing import Any

from chairlift.config.model import SamplingDefaults
from chairlift.core.params import SamplingParams


def add_sampling_flags(parser: argparse.ArgumentParser, max_tokens: int | None) -> None:
    section = parser.add_argument_group("sampling (default: what the model suggests)")
    shown = "until the model stops or its context is full" if max_tokens is None else str(max_tokens)
    section.add_argument(
        "--max-tokens", type=int, metavar="N", default=max_tokens, help=f"longest answer (default: {shown})"
    )
    section.add_argument("--temperature", type=float, metavar="X", help="0: always the most likely token")
    section.add_argument("--top-p", type=float, metavar="X", help="draw from the most likely tokens of this total")
    section.add_argument("--top-k", type=int, metavar="N", help="draw from the N most likely tokens; 0: from all")
    section.add_argument("--seed", type=int, metavar="N", help="repeat the same draws")


def params_from(options: argparse.Namespace, defaults: SamplingDefaults) -> SamplingParams:
    given: dict[str, Any] = {
        name: value for name in ("temperature", "top_p", "top_k") if (value := getattr(options, name)) is not None
    }
    suggested: dict[str, Any] = {
        "temperature": defaults.temperature,
        "top_k": defaults.top_k,
        "top_p": defaults.top_p,
        "min_p": defaults.min_p,
        "repetition_penalty": defaults.repetition_penalty,
    }
    return SamplingParams(max_tokens=options.max_tokens, seed=options.seed, **(suggested | given))
