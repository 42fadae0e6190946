"""Modules that a quantised file leaves as they are, as quantization_config lists them: for forecasts alone.

    "lm_head", "mlp.gate"                    parts of a module's name, whole words between dots
    "model.layers.*.linear_attn*"            names, with * for anything
    "re:.*mlp[.]gate$", "-:.*down_proj"      beginnings of names; those of expressions that say no more than .*

Always: what is loaded is what the tensors are, whatever the lists say. What is not understood leaves nothing out.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

from chairlift.models.families.wrapped import text_name

IsLeft = Callable[[str], bool]  # by a module's name

_LISTS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules")
_WIDE = 16  # bits that are no quantisation
_PLAIN = re.compile(r"[\w.-]+")
Pieces = Sequence[str]  # that follow each other, with anything between


def left_out(given: object) -> IsLeft:
    """given: quantization_config."""
    words, patterns = set[str](), list[Pieces]()
    for entry in _entries(given) if isinstance(given, dict) else ():
        if _PLAIN.fullmatch(entry):
            words.add(text_name(entry))
        elif pieces := _pieces(entry):
            patterns.append(pieces)

    def is_left(module: str) -> bool:
        parts = module.split(".")
        named = (".".join(parts[low:high]) for low, high in combinations(range(len(parts) + 1), 2))
        return not words.isdisjoint(named) or any(_fits(pieces, module) for pieces in patterns)

    return is_left if words or patterns else lambda _: False


def _entries(given: dict[str, Any]) -> Iterable[str]:
    lists = (each for key in _LISTS if isinstance(each := given.get(key), list))
    yield from (entry for each in lists for entry in each if isinstance(entry, str))
    dynamic, extra = given.get("dynamic"), given.get("extra_config")
    if isinstance(dynamic, dict):  # of GPTQ
        yield from (f"re:{key.removeprefix('-:')}" for key in dynamic if isinstance(key, str) and key.startswith("-:"))
    if isinstance(extra, dict):  # of AutoRound
        yield from (key for key, own in extra.items() if isinstance(own, dict) and _is_wide(own.get("bits")))


def _is_wide(bits: object) -> bool:
    return type(bits) is int and bits >= _WIDE


def _pieces(entry: str) -> Pieces:
    """None: it says more."""
    if not entry.startswith("re:"):
        pieces = entry.split("*")
    else:
        said = entry.removeprefix("re:").removeprefix("^")
        ends = said if said.endswith("$") else f"{said}.*"
        pieces = [piece.replace(r"\.", ".").replace("[.]", ".") for piece in ends.removesuffix("$").split(".*")]
    return pieces if all(not piece or _PLAIN.fullmatch(piece) for piece in pieces) else ()


def _fits(pieces: Pieces, module: str) -> bool:
    first, *others = pieces
    if not others:
        return module == first
    *between, last = others
    if not module.startswith(first) or not module.endswith(last):
        return False
    at, end = len(first), len(module) - len(last)
    for piece in between:
        found = module.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end
