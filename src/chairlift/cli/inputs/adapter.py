"""The flag that names an adapter."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chairlift.llm import LLM


def add_adapter_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--adapter", metavar="NAME", help="answer with this adapter of --lora or --lora-dir (default: the model alone)"
    )


def known_adapter(options: argparse.Namespace, llm: "LLM") -> str | None:
    """Its name; raises `InvalidRequest` where there is none of that name, before anything is asked."""
    llm.check_adapter(options.adapter)
    name: str | None = options.adapter
    return name
