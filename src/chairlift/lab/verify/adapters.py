"""The adapters that requests are spread over: those of the model's settings, or those named of a server.

Always: requests take turns, the base first; each round begins one further on, so that no adapter meets the same kind
of sampling each time. An adapter that no request would have is refused: nothing would be said of it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chairlift.build import ResolvedModel, adapter_registry
from chairlift.core.errors import InvalidConfig
from chairlift.lab.verify.cases import Case
from chairlift.live.adapters.registry import AdapterRegistry

_MOST_NAMED = 8


def with_folders(model: ResolvedModel) -> ResolvedModel:
    """The model with all adapters that requests may name as `lora`, found, and checked before anything is loaded."""
    registry, settings = adapter_registry(model), model.settings
    if registry is None:
        return model
    registry.start(settings.lora)
    folders = tuple((name, _folder(registry, name)) for name in registry.names())
    if not folders:
        raise InvalidConfig(
            f"--lora-dir {settings.lora_dir}: holds no adapters; give their folder, or --lora NAME=PATH"
        )
    return model.under(replace(settings, lora=folders, lora_dir=None))


def _folder(registry: AdapterRegistry, name: str) -> Path:
    try:
        found = registry.find(name)
    except InvalidConfig as error:
        raise InvalidConfig(f"--lora-dir: {error}; take it out of the folder, or name others with --lora") from None
    if found is None:
        raise InvalidConfig(f"--lora-dir: {name} was there and is gone; try again")
    return Path(found.path)


def names_of(model: ResolvedModel) -> tuple[str, ...]:
    return tuple(name for name, _ in model.settings.lora)


def spread(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases, of which each has the base or an adapter."""
    turns = ("", *names)
    if len(cases) < len(turns):
        raise InvalidConfig(
            f"--num-prompts: {len(cases)} prompts are too few for the base and {len(names)} adapters in turn; "
            f"give {len(turns)} or more, or fewer adapters"
        )
    return [replace(case, adapter=turns[(i + i // len(turns)) % len(turns)]) for i, case in enumerate(cases)]


def listed(names: Sequence[str]) -> str:
    """For a report; empty: none."""
    if len(names) > _MOST_NAMED:
        return f"{len(names)} adapters"
    return f"adapters {', '.join(sorted(names))}" if names else ""


def check_known(cases: Sequence[Case], names: Sequence[str], way_out: str) -> None:
    """Refuses cases, as a stored run has them, with an adapter that is not there."""
    for index, case in enumerate(cases):
        if case.adapter and case.adapter not in names:
            raise InvalidConfig(f"request {index} has the adapter {case.adapter!r}, which is not known here; {way_out}")
