"""Sampling flags of `chat` and `generate`: one per field of `SamplingParams` whose effect they show.

Flags that are not given take the model's suggestion. Beside them the flag that names an adapter.
"""

import argparse
from collections.abc import Collection
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.core.param_types import Param
from chairlift.core.params import PARAMS
from chairlift.models.spec import SamplingDefaults

if TYPE_CHECKING:
    from chairlift.llm import LLM

_NOT_SHOWN = ("logprobs", "prompt_logprobs", "detokenize")  # by these commands
_SUGGESTED = tuple(field.name for field in fields(SamplingDefaults))
_UNTIL = "until the model stops or its context is full"
# field type: (type, metavar, action) of the flag; fields of other types have no flag
_FLAGS: dict[object, tuple[type, str, str]] = {
    int: (int, "N", "store"), float: (float, "X", "store"), tuple[str, ...]: (str, "TEXT", "append"),
    tuple[int, ...]: (int, "N", "append"),
}  # fmt: skip


def add_sampling_flags(
    parser: argparse.ArgumentParser, max_tokens: int | None = None, without: Collection[str] = ()
) -> None:
    """`max_tokens`: the default of --max-tokens."""
    section = parser.add_argument_group("sampling (default: what the model suggests)")
    for name, param in PARAMS.items():
        if name not in (*_NOT_SHOWN, *without):
            _add_flag(section, param, param.default if name != "max_tokens" else max_tokens or _UNTIL)
    parser.set_defaults(max_tokens=max_tokens)


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of `SamplingParams` that were given."""
    return {name: value for name in PARAMS if (value := getattr(options, name, None)) is not None}


def _add_flag(section: argparse._ArgumentGroup, param: Param, default: object) -> None:
    flag = "--" + param.name.replace("_", "-")
    if param.type is bool:
        shown = f" (default: {'on' if default else 'off'})"
        section.add_argument(flag, action=argparse.BooleanOptionalAction, help=param.help + shown)
    elif param.type in _FLAGS:
        kind, hint, action = _FLAGS[param.type]
        shown = "" if default in (None, ()) or param.name in _SUGGESTED else f" (default: {default})"
        repeat = "; may be given again" if action == "append" else ""
        section.add_argument(flag, type=kind, metavar=hint, action=action, help=param.help + repeat + shown)


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
