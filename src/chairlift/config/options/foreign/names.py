"""Options as other engines name them: one of ours with the same meaning, nothing to do, or what to use instead.

Always: a name here is no name of ours. `table` holds them all; nothing is known here of flags or files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Shape = Literal["value", "values", "switch", "constant", "optional"]

_AS_GIVEN: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Foreign:
    flags: tuple[str, ...]  # as the other engine spells them, the one that names it first
    option: str = ""  # ours, of the same meaning; empty: there is none
    note: str = ""  # what differs; without an option why none is needed, or what to use
    shape: Shape = "value"  # what follows the flag; a switch has a --no- form too, a constant stands for its value
    values: Mapping[str, object] = field(
        default_factory=lambda: _AS_GIVEN
    )  # ours for theirs, where they are spelled differently
    constant: object = True
    is_needless: bool = False  # without an option: may be left out, and is ignored with a word

    @property
    def name(self) -> str:
        """As a key of a file and an attribute of parsed flags."""
        return self.flags[0].lstrip("-").replace("-", "_")

    def value(self, given: object) -> object:
        """Ours for what was given."""
        if self.shape == "constant" and given is True:
            return self.constant
        return self.values.get(given, given) if isinstance(given, str) else given


def same(
    option: str, *flags: str, note: str = "", shape: Shape = "value", values: Mapping[str, object] = _AS_GIVEN
) -> Foreign:
    return Foreign(flags, option, note, shape, values)


def constant(option: str, value: object, *flags: str, note: str = "") -> Foreign:
    """A flag without a value that stands for one of ours."""
    return Foreign(flags, option, note, "constant", constant=value)


def needless(why: str, *flags: str, shape: Shape = "switch") -> Foreign:
    return Foreign(flags, note=why, shape=shape, is_needless=True)


def instead(use: str, *flags: str) -> Foreign:
    return Foreign(flags, note=use, shape="optional")
