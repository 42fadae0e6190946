"""Experts that a file keeps in one tensor, under the names that each of them has in other files.

mlp.experts.gate_up_proj [X, 2F, E]  ->  mlp.experts.0.gate_proj.weight [F, E], mlp.experts.0.up_proj.weight, ...
mlp.experts.down_proj [X, E, F]      ->  mlp.experts.0.down_proj.weight [E, F], ...
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

_JOINED = re.compile(r"(.+\.experts)\.(gate_up|down)_proj")
_OTHERWISE = ("_bias", "_blocks", "_scales")  # beside tensors that are laid out in another way


class Piece(NamedTuple):
    """A matrix of a tensor of several experts."""

    joined: str
    expert: int
    rows: slice


def joined_names(names: Collection[str]) -> list[str]:
    known = frozenset(names)
    return [name for name in names if _JOINED.fullmatch(name) and not any(name + each in known for each in _OTHERWISE)]


def pieces(name: str, shape: list[int]) -> Iterator[tuple[str, Piece]]:
    """By their own names, of a joined tensor of this shape."""
    match = _JOINED.fullmatch(name)
    assert match is not None
    count, height, _ = shape
    kinds = ("gate", "up") if match[2] == "gate_up" else ("down",)
    own = height // len(kinds)
    for expert in range(count):
        for index, kind in enumerate(kinds):
            rows = slice(index * own, (index + 1) * own)
            yield f"{match[1]}.{expert}.{kind}_proj.weight", Piece(name, expert, rows)
