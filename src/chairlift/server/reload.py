"""Settings that change while the server runs: the parent reads them again and tells its children.

    {"number": 3, "values": {"max_waiting": 100}, "changed": ["max_waiting"], "needs_restart": ["port"], "error": "",
     "keys": [{"name": "alice", "digest": "..."}], "adapters": [{"name": "sql", "max_requests": 8}]}

Always: the file holds the result of the last reload, whole, with the values in force of all settings that may change
and the valid API keys and limits of adapters; it is written before a child starts and before SIGHUP is sent. Only the
parent reads the files of these, so a broken one changes none, even for a child started meanwhile.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from chairlift.config.keys import ApiKey, ApiKeys
from chairlift.config.options.reload import CHANGEABLE, reload
from chairlift.config.settings import Settings
from chairlift.core.errors import ChairliftError
from chairlift.models.adapters.limits import AdapterLimit, AdapterLimits, read_adapter_limits
from chairlift.server.admission.access import keys_of

_KEYS = "api_keys"  # among `changed`, when keys came, went or have other limits
_ADAPTERS = "adapter_limits"  # likewise


class ReloadResult(msgspec.Struct, frozen=True):
    number: int = 0  # of reloads so far
    values: dict[str, Any] = {}
    changed: list[str] = []
    needs_restart: list[str] = []
    error: str = ""
    keys: list[ApiKey] = []
    adapters: list[AdapterLimit] = []

    def in_words(self) -> str:
        if self.error:
            return f"the settings stay as they are: {self.error}"
        changes = [f"{name} is {self.values[name]!r} now" for name in self.changed if name in self.values]
        if _KEYS in self.changed:
            changes.append(f"the API keys have changed, they are {len(self.keys)} now")
        if _ADAPTERS in self.changed:
            changes.append("the limits of adapters have changed")
        changes += [f"{name} needs a restart to change" for name in self.needs_restart]
        return "read the settings again: " + ("; ".join(changes) or "nothing has changed")


def last_reload(file: Path) -> ReloadResult:
    return msgspec.json.decode(file.read_bytes(), type=ReloadResult)


def in_force(file: Path, settings: Settings) -> Settings:
    return replace(settings, **last_reload(file).values)


def keys_in_force(file: Path) -> ApiKeys:
    return ApiKeys(last_reload(file).keys)


def adapters_in_force(file: Path) -> AdapterLimits:
    return AdapterLimits(last_reload(file).adapters)


class Reloader:
    def __init__(self, file: Path, settings: Settings, read: Callable[[], Settings]) -> None:
        """Raises `InvalidConfig` when the keys, or the limits of adapters, cannot be read."""
        self.settings = settings
        self._keys, self._adapters = _limited(settings)
        self._file = file
        self._read = read
        self._number = 0
        self._write(ReloadResult(values=self._values(), keys=self._keys, adapters=self._adapters))

    def __call__(self) -> ReloadResult:
        self._number += 1
        before = self.settings, self._keys, self._adapters
        try:
            found = reload(self.settings, self._read())
            keys, adapters = _limited(found.settings)
        except ChairliftError as error:
            result = ReloadResult(self._number, self._values(), error=str(error))
        else:
            changed = [*found.changed, *[_KEYS] * (keys != self._keys), *[_ADAPTERS] * (adapters != self._adapters)]
            self.settings, self._keys, self._adapters = found.settings, keys, adapters
            result = ReloadResult(self._number, self._values(), changed, [*found.needs_restart])
        result = msgspec.structs.replace(result, keys=self._keys, adapters=self._adapters)
        try:
            self._write(result)
        except OSError as error:  # a full disk, say; the next reload may succeed
            self.settings, self._keys, self._adapters = before
            return ReloadResult(self._number, error=f"{self._file}: {error.strerror}")
        return result

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self.settings, name) for name in CHANGEABLE}

    def _write(self, result: ReloadResult) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(result))
        os.replace(beside, self._file)


def _limited(settings: Settings) -> tuple[list[ApiKey], list[AdapterLimit]]:
    return [*keys_of(settings)], read_adapter_limits(settings.lora_limits)
