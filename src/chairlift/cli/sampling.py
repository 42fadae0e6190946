"""Sampling flags shared by `chat` and `generate`; what is not given comes from the model's own suggestions."""

import argparse
from typing import Any

_NAMES = ("max_tokens", "temperature", "top_p", "top_k", "seed")


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


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of `SamplingParams` that were asked for."""
    return {name: value for name in _NAMES if (value := getattr(options, name)) is not None}
