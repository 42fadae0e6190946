"""Flags from the option table, the settings they resolve to together with file and environment, and a command's own
flags: their values, files and progress."""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.config.options.foreign.names import Foreign
from chairlift.config.options.foreign.table import FOREIGN
from chairlift.config.options.resolve import DEFAULTS, JSON, OPTIONS, Option, option_named, resolve, with_our_names
from chairlift.config.options.values import Parser
from chairlift.config.settings import Group, Settings
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.build import ResolvedModel

_TITLES: dict[Group, str] = {
    "model": "model",
    "engine": "scheduling and memory",
    "replicas": "replicas",
    "nodes": "other machines",
    "server": "server",
    "record": "recording",
}


class _Once(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{self.option_strings[0]}: may be given once; put both into one file, or use flags")
        setattr(namespace, self.dest, values)


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """MODEL, for a command whose flags have --model too."""
    parser.add_argument("which", nargs="?", metavar="MODEL", help=option_named("model").help)


def add_option_flags(parser: argparse.ArgumentParser, *groups: Group, without: Collection[str] = ()) -> None:
    """Adds --config and every option of these groups, except those that the command defines itself."""
    parser.add_argument(
        "--config", type=Path, action=_Once, metavar="FILE",
        help="read options from this YAML file, ours or llm-serving's",
    )  # fmt: skip
    added = []
    has_argument = any(action.dest == "which" for action in parser._actions)
    for group in groups:
        section = parser.add_argument_group(_TITLES[group])
        for option in OPTIONS:
            if option.group == group and option.name not in without:
                is_same = option.name == "model" and has_argument
                _add_flag(section, replace(option, help="same as the argument MODEL") if is_same else option)
                added.append(option.name)
    others = [foreign for foreign in FOREIGN if foreign.option in added or ("model" in groups and not foreign.option)]
    taken = {flag for action in parser._actions for flag in action.option_strings}
    added += [foreign.name for foreign in others if add_foreign_flag(parser, foreign, taken)]
    parser.set_defaults(option_names=tuple(added))


def settings_from(options: argparse.Namespace) -> Settings:
    return resolve(_given(options), options.config, os.environ)


def warned_settings(options: argparse.Namespace) -> Settings:
    """The settings, with their warnings printed."""
    settings = settings_from(options)
    warn(settings.warnings)
    return settings


def warned_model(settings: Settings) -> "ResolvedModel":
    """The model, with its warnings printed."""
    from chairlift.build import find_model

    model = find_model(settings)
    if model.config.embedding is not None:
        raise InvalidConfig(
            f"{model.name} makes no text, which this command is about; use `chairlift serve` or LLM.embed"
        )
    warn(model.config.warnings)
    return model


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"chairlift: warning: {warning}", file=sys.stderr)


def flags_of(options: argparse.Namespace) -> dict[str, object]:
    """The options given as flags, by our names; a command's own flag of the same name is not one."""
    return with_our_names(_given(options)).values


def arguments_of(options: argparse.Namespace) -> list[str]:
    """The options given as flags, for another process."""
    arguments = [] if options.config is None else ["--config", str(options.config)]
    for name, value in flags_of(options).items():
        flag = option_named(name).flag
        if isinstance(value, bool):
            arguments.append(flag if value else flag.replace("--", "--no-", 1))
        elif value is not None:
            arguments += [
                word for each in (value if isinstance(value, list) else [value]) for word in (flag, str(each))
            ]
    return arguments


def _given(options: argparse.Namespace) -> dict[str, object]:
    given = {name: getattr(options, name) for name in options.option_names}
    which = getattr(options, "which", None)
    if which is not None:
        if given["model"] not in (None, which):
            raise InvalidConfig(f"MODEL {which} and --model {given['model']} are different models: give one of them")
        given["model"] = which
    elif given.get("model") is None:
        _check_not_taken(given.get("served_model_name"))
    return given


def _check_not_taken(names: object) -> None:
    """Refuses a MODEL that stands behind the served names and would be one of them."""
    last = names[-1] if isinstance(names, list) and len(names) > 1 else ""
    if "/" in last or (last and Path(last).exists()):
        raise InvalidConfig(f"--served-model-name: {last} would be another name; give MODEL before the options")


def parsed(options: argparse.Namespace, name: str, parse: Parser) -> Any:
    """The value of a command's own flag; None where it was not given."""
    given = getattr(options, name)
    try:
        return None if given is None else parse(given)
    except ValueError as error:
        raise InvalidConfig(f"--{name.replace('_', '-')} {error}, got {given!r}") from error


def positive(value: object) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = 0.0
    if not 0.0 < number < 1e9:
        raise ValueError("must be a number above 0")
    return number


@contextmanager
def writing(path: object) -> Iterator[None]:
    """An OSError becomes the user's mistake, named by `path`."""
    try:
        yield
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def progress(advance: Callable[..., object], **look: Any) -> Iterator[Any]:
    """On a terminal, a function that calls `advance` with a progress bar and its arguments; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(leave=False, **look) as bar:
        yield partial(advance, bar)


def _add_flag(section: argparse._ArgumentGroup, option: Option) -> None:
    default = DEFAULTS[option.name]
    if option.hint:
        shown = "" if default in (None, ()) or "default:" in option.help else f" (default: {default})"
        several: dict[str, Any] = (
            {"action": "extend", "nargs": "+"} if option.hint.endswith(" ...") else {"action": "append"}
        )
        hint = option.hint.removesuffix(" ...")
        many = several if default == () or hint == JSON else {}
        section.add_argument(option.flag, metavar=hint, help=option.help + shown, **many)
    else:
        shown = f" (default: {'on' if default else 'off'})"
        section.add_argument(option.flag, action=argparse.BooleanOptionalAction, help=option.help + shown)


_FOREIGN_ACTIONS: dict[str, dict[str, Any]] = {
    "value": {},
    "values": {"nargs": "+", "action": "extend"},
    "optional": {"nargs": "?", "const": True},
    "switch": {"action": argparse.BooleanOptionalAction},
    "constant": {"action": "store_const", "const": True},
}


def add_foreign_flag(parser: argparse.ArgumentParser, foreign: Foreign, taken: Collection[str]) -> bool:
    """Hidden in the help; not where the command has flags of these names."""
    flags = [flag for flag in foreign.flags if flag not in taken]
    if flags:
        parser.add_argument(*flags, dest=foreign.name, help=argparse.SUPPRESS, **_FOREIGN_ACTIONS[foreign.shape])
    return bool(flags)
