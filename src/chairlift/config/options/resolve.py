"""Options by flag, YAML key and environment name, all derived from the fields of `Settings`.

    max_running     --max-running     max_running: (or max-running:)     CHAIRLIFT_MAX_RUNNING

Always: a flag wins over the environment, the environment over YAML, YAML over the preset that one of these names, the
preset over the default. An unknown name or a bad value is refused with the option's name and what is allowed; flags and
YAML may use other engines' names. Does not know how flags are parsed or files are found.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from chairlift.config.fields import shown
from chairlift.config.options import llm_serving
from chairlift.config.options.foreign.names import Foreign
from chairlift.config.options.foreign.table import BY_NAME as FOREIGN_BY_NAME
from chairlift.config.options.foreign.vllm_keywords import vllm_key, vllm_warnings
from chairlift.config.options.presets import NONE, PRESETS
from chairlift.config.options.values import Parser, did_you_mean
from chairlift.config.settings import Group, Settings
from chairlift.core.errors import InvalidConfig

_NOTHING: Mapping[str, str] = MappingProxyType({})
_PREFIX = "CHAIRLIFT_"
JSON = "JSON"  # hint of an option whose flags may be several, and have the form --name.part
_EXCLUSIVE = {"num_blocks": "kv_memory", "kv_memory": "num_blocks"}


@dataclass(frozen=True, slots=True)
class Option:
    name: str  # a field of Settings
    group: Group
    parse: Parser
    hint: str  # the value's shape in the help; empty for an on/off option
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        return _PREFIX + self.name.upper()


class InvalidOptions(InvalidConfig):
    """All that is wrong with what was given, found in one start."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


class _Parsed(NamedTuple):
    values: dict[str, Any]
    mistakes: list[str]


class OurNames(NamedTuple):
    values: dict[str, object]
    needless: list[str]
    typed: dict[str, str]  # other engines' names, by ours
    refused: list[str]


OPTIONS = tuple(Option(field.name, **field.metadata) for field in fields(Settings) if field.metadata)
_BY_NAME = {option.name: option for option in OPTIONS}
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Settings) if field.name in _BY_NAME}


def option_named(name: str) -> Option:
    return _BY_NAME[name]


def resolve(
    flags: Mapping[str, object], config: Path | None = None, environment: Mapping[str, str] = _NOTHING
) -> Settings:
    """Settings from the three places a value may come from; a flag that is None was not given."""
    document = {} if config is None else _read_yaml(config)
    translation = None

    def in_file(name: str) -> str:
        return f"{config}: {name}"

    if config is not None and llm_serving.is_llm_serving(document):
        translation = llm_serving.translate(document, config)
    named = {option.environment: option.name for option in OPTIONS}
    from_environment: dict[str, object] = {
        named[key]: value for key, value in environment.items() if key in named and value != ""
    }
    by_flag = with_our_names(flags)
    by_file = with_our_names(translation.values if translation else document, in_file)
    layers = (
        _parse(by_file, in_file, llm_serving.SECTIONS),
        _parse(OurNames(from_environment, [], {}, []), lambda name: _BY_NAME[name].environment),
        _parse(by_flag, _as_flag),
    )
    if mistakes := [mistake for layer in layers for mistake in layer.mistakes]:
        raise InvalidOptions(mistakes)
    given = _merge(*(layer.values for layer in layers))
    warnings = vllm_warnings(environment, given)
    given |= vllm_key(environment, given)
    preset = given.get("preset", NONE)
    values = _merge({name: _BY_NAME[name].parse(value) for name, value in PRESETS[preset].items()}, given)
    warnings += [
        f"the environment variable {key} names no option{did_you_mean(key, named, _PREFIX)}"
        for key in environment
        if key.startswith(_PREFIX) and key not in named
    ]
    warnings += [*by_flag.needless, *by_file.needless]
    if translation is None:
        return Settings(**values, given=tuple(given), warnings=tuple(warnings))
    warnings += translation.warnings
    # A flag or a variable that asks for more than the model has stays a mistake.
    can_clip = by_flag.values.get("max_model_len") is None and "max_model_len" not in from_environment
    compat = replace(translation.compat, can_clip_max_model_len=can_clip)
    return Settings(**values, given=tuple(given), compat=compat, warnings=tuple(warnings))


def _as_flag(name: str) -> str:
    if name in _BY_NAME:
        return _BY_NAME[name].flag
    return FOREIGN_BY_NAME[name].flags[0] if name in FOREIGN_BY_NAME else name


def with_our_names(given: Mapping[str, object], said: Callable[[str], str] = _as_flag) -> OurNames:
    """Values by our names instead of other engines', a warning for each that is not needed, and what is refused."""
    found: dict[str, object] = {key: value for key, value in given.items() if _foreign(key) is None}
    known = {str(key).replace("-", "_") for key, value in found.items() if value is not None}
    ours = OurNames(found, [], {}, [])
    for key, value in given.items():
        foreign = _foreign(key)
        if foreign is None or value is None:
            continue
        if foreign.is_needless:
            ours.needless.append(f"{said(key)} is ignored: {foreign.note}")
        elif not foreign.option:
            ours.refused.append(f"{said(key)}: {foreign.note}")
        elif foreign.option in known:
            ours.refused.append(f"{said(key)} is {said(foreign.option)} here: give one of them")
        else:
            known.add(foreign.option)
            found[foreign.option] = foreign.value(value)
            ours.typed[foreign.option] = key
    return ours


def _foreign(key: str) -> Foreign | None:
    name = str(key).replace("-", "_")
    return None if name in _BY_NAME else FOREIGN_BY_NAME.get(name)


def _merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Later layers win; one of two options that exclude each other removes the other given further down."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name in layer:
            if _EXCLUSIVE.get(name) not in layer:
                merged.pop(_EXCLUSIVE.get(name, ""), None)
        merged.update(layer)
    return merged


def _parse(given: OurNames, said: Callable[[str], str], sections: Iterable[str] = ()) -> _Parsed:
    """`sections`: names that may have been meant beside the options'."""
    parsed = _Parsed({}, list(given.refused))
    for key, value in given.values.items():
        name = str(key).replace("-", "_")
        if name not in _BY_NAME:
            known = [*_BY_NAME, *(section for section in sections if section not in given.values)]
            unknown = f"{said(str(key))}: unknown option{did_you_mean(name, known)}; `chairlift serve --help` has all"
            parsed.mistakes.append(unknown)
            continue
        if value is None:
            continue
        try:
            parsed.values[name] = _BY_NAME[name].parse(value)
        except ValueError as error:
            parsed.mistakes.append(f"{said(given.typed.get(name, name))} {error}, got {_shown(name, value)}")
    return parsed


def _shown(name: str, value: object) -> str:
    if not isinstance(value, list):
        return shown(value)
    items = ", ".join(map(shown, value))
    return items if DEFAULTS[name] == () else f"[{items}]"


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _OnceLoader)
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidConfig(f"{path}: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InvalidConfig(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidConfig(f"{path}: must hold a map of option names to values")
    return document


class _OnceLoader(yaml.SafeLoader):
    """Refuses a key that a map has twice: one of its values would be lost."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name in seen and name != "<<":
                raise ValueError(f"{name} stands there twice, at line {key.start_mark.line + 1} again")
            seen |= {name} - {None}
        return super().construct_mapping(node, deep)
