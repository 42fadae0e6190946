"""What an `LLM` is made with, as one value, and as flags of a script."""

import argparse
from typing import Any, Self, TypeVar

from chairlift.cli.inputs.flags import add_option_flags

P = TypeVar("P", bound=argparse.ArgumentParser)


class EngineArgs:
    """`AsyncLLM.from_engine_args(EngineArgs(model="path", max_running=64))`; names as for `LLM`."""

    def __init__(self, model: str | None = None, **options: Any) -> None:
        self.options = {"model": model, **options}

    def __repr__(self) -> str:
        given = {name: value for name, value in self.options.items() if value is not None}
        return f"EngineArgs({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    @staticmethod
    def add_cli_args(parser: P) -> P:
        """Adds our options as flags, and vLLM's; `LLM(**vars(parser.parse_args()))` takes them."""
        add_option_flags(parser, "model", "engine", "record")
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> Self:
        return cls(**{name: getattr(args, name) for name in (*args.option_names, "config")})


AsyncEngineArgs = EngineArgs  # vLLM has two
