"""What an `LLM` is made with, as one value, and as flags of a script."""

import argparse
from typing import Any, Self, TypeVar

from chairlift.config.options.resolve import DEFAULTS, OPTIONS, Option
from chairlift.local.keywords import EQUAL, WITHOUT_EFFECT

_GROUPS = ("model", "engine", "record")
_OWN = [option for option in OPTIONS if option.group in _GROUPS or option.name == "task"]
P = TypeVar("P", bound=argparse.ArgumentParser)


class EngineArgs:
    """`AsyncLLM.from_engine_args(EngineArgs(model="path", max_running=64))`; names as for `LLM`."""

    def __init__(self, model: str | None = None, **options: Any) -> None:
        self.options = {"model": model, **options}

    def __repr__(self) -> str:
        return f"EngineArgs({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    @staticmethod
    def add_cli_args(parser: P) -> P:
        """Adds our options as flags, and vLLM's; `LLM(**vars(parser.parse_args()))` takes them."""
        own = parser.add_argument_group("chairlift")
        for option in _OWN:
            _add_flag(own, option)
        theirs = parser.add_argument_group("vLLM's names")
        for name, ours in EQUAL.items():
            theirs.add_argument(_flag(name), metavar="VALUE", help=f"the same as {_flag(ours)}")
        for name in sorted(WITHOUT_EFFECT):
            theirs.add_argument(_flag(name), nargs="?", const=True, metavar="VALUE", help="without effect here")
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> Self:
        known = {option.name for option in _OWN} | EQUAL.keys()
        return cls(**{name: value for name, value in vars(args).items() if name in known})


def _add_flag(section: Any, option: Option) -> None:
    if not option.hint:
        section.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=option.help)
        return
    action = "append" if DEFAULTS[option.name] == () else "store"
    section.add_argument(option.flag, action=action, metavar=option.hint, help=option.help)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


AsyncEngineArgs = EngineArgs  # vLLM has two
