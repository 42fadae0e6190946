"""Settings that change while the server runs: the parent looks at them again, and everybody else is told.

    {"number": 3, "values": {"max_waiting": 100}, "changed": ["max_waiting"], "needs_restart": ["port"], "error": ""}

Always: the file holds the outcome of the last look, whole, with the values in force of all settings that may change;
it is there before SIGHUP is sent, and who starts later finds it too.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from chairlift.config.reload import CHANGEABLE, reload
from chairlift.config.settings import Settings
from chairlift.core.errors import ChairliftError


class Outcome(msgspec.Struct, frozen=True):
    number: int = 0  # of the look
    values: dict[str, Any] = {}
    changed: list[str] = []
    needs_restart: list[str] = []
    error: str = ""

    def in_words(self) -> str:
        if self.error:
            return f"the settings stay as they are: {self.error}"
        said = [f"{name} is {self.values[name]!r} now" for name in self.changed]
        said += [f"{name} needs a restart to change" for name in self.needs_restart]
        return "read the settings again: " + ("; ".join(said) or "nothing has changed")


def outcome(file: Path) -> Outcome:
    """Of the last look, or of none."""
    return msgspec.json.decode(file.read_bytes(), type=Outcome) if file.exists() else Outcome()


def in_force(file: Path, settings: Settings) -> Settings:
    return replace(settings, **outcome(file).values)


class Reloader:
    """The parent's part."""

    def __init__(self, file: Path, settings: Settings, look: Callable[[], Settings]) -> None:
        self.settings = settings
        self._file = file
        self._look = look

    def __call__(self) -> Outcome:
        number = outcome(self._file).number + 1
        try:
            found = reload(self.settings, self._look())
        except ChairliftError as error:
            said = Outcome(number, self._values(), error=str(error))
        else:
            self.settings = found.settings
            said = Outcome(number, self._values(), [*found.changed], [*found.needs_restart])
        self._write(said)
        return said

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self.settings, name) for name in CHANGEABLE}

    def _write(self, said: Outcome) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(said))
        os.replace(beside, self._file)
