"""Sampling flags of `chat` and `generate`: one per field of `SamplingParams` whose effect they show.

Flags that are not given take the model's suggestion.
"""

import argparse
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from chairlift.core.param_types import Param
from chairlift.core.params import PARAMS
from chairlift.models.spec import SamplingDefaults

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
