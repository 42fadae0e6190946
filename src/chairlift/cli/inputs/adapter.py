"""The flag that names an adapter."""

import argparse
from typing import TYPE_CHECKING

from chairlift.core.errors import InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from chairlift.llm import LLM


def add_adapter_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--adapter", metavar="NAME", help="answer with this adapter of --lora or --lora-dir (default: the model alone)"
    )


def known_adapter(options: argparse.Namespace, llm: "LLM") -> str | None:
    """Its name; raises `InvalidConfig` where there is none of that name, before anything is asked."""
    name: str | None = options.adapter
    try:
        llm.check_adapter(name)
    except InvalidRequest as error:
        raise InvalidConfig(f"--adapter: {error.message}") from None
    return name
