"""Flags from the option table, and the settings they resolve to together with file and environment."""

import argparse
import os
import sys
from collections.abc import Collection
from pathlib import Path

from chairlift.config.options import DEFAULTS, OPTIONS, Group, Option, resolve
from chairlift.config.settings import Settings

_TITLES: dict[Group, str] = {
    "model": "model",
    "engine": "scheduling and memory",
    "server": "server",
    "record": "recording",
}


def add_option_flags(parser: argparse.ArgumentParser, *groups: Group, without: Collection[str] = ()) -> None:
    """Adds --config and every option of these groups, but for those that the command has itself."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="options from a YAML file, ours or one written for llm-serving"
    )
    added = []
    for group in groups:
        section = parser.add_argument_group(_TITLES[group])
        for option in OPTIONS:
            if option.group == group and option.name not in without:
                _add_flag(section, option)
                added.append(option.name)
    parser.set_defaults(option_names=tuple(added))


def settings_from(options: argparse.Namespace) -> Settings:
    return resolve(flags_of(options), options.config, os.environ)


def flags_of(options: argparse.Namespace) -> dict[str, object]:
    """Options as flags gave them; a flag of the command's own that is called the same is none."""
    return {name: getattr(options, name) for name in options.option_names}


def show_warnings(settings: Settings) -> None:
    for warning in settings.warnings:
        print(f"chairlift: warning: {warning}", file=sys.stderr)


def _add_flag(section: argparse._ArgumentGroup, option: Option) -> None:
    default = DEFAULTS[option.name]
    if option.hint:
        shown = "" if default is None or "default:" in option.help else f" (default: {default})"
        section.add_argument(option.flag, metavar=option.hint, help=option.help + shown)
    else:
        shown = f" (default: {'on' if default else 'off'})"
        section.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=option.help + shown)
