"""Tensors of files as parts of matrices: what a declaration lists and a loader reads.

Knows nothing of files or numbers.
"""

from math import prod
from typing import NamedTuple


class HeadOrder(NamedTuple):
    """Heads whose rows are stored for another rotation than ours, which turns pairs half a head apart.

    A product of a query and a key does not change if both are put into another order.
    """

    num_heads: int  # from the tensor's first row on
    head_dim: int
    num_turned: int  # rows of a head that turn, its first
    is_paired: bool  # pairs are neighbours; otherwise they are half of what turns apart

    @property
    def rows(self) -> list[int]:
        """Where each row of a head is stored: its rows that stand still fill both halves."""
        turned, still = range(self.num_turned), range(self.num_turned, self.head_dim)
        half, middle = self.num_turned // 2, len(still) // 2
        first, second = (turned[::2], turned[1::2]) if self.is_paired else (turned[:half], turned[half:])
        return [*first, *still[:middle], *second, *still[middle:]]


class SectionOrder(NamedTuple):
    """Rows that are stored group by group, each with a piece of every section, which ours has one after the other.

    stored  q0 gate0 q1 gate1 ...        ours  q0 q1 ... gate0 gate1 ...
    """

    num_groups: int
    sizes: tuple[int, ...]  # rows of a group in each section
    first: HeadOrder | None = None  # of the first section
    before: int = 0  # rows before all groups, which are in order


Order = HeadOrder | SectionOrder


class Part(NamedTuple):
    """A tensor of a file."""

    name: str
    shape: tuple[int, ...]
    order: Order | None = None  # None: rows are in order
    offset: float = 0.0  # what the stored numbers lack; 0 except for norms
    # Of experts that are in one tensor:
    is_transposed: bool = False  # each expert's columns are stored as rows
    is_alternating: bool = False  # a row of the gate, then one of the up projection, and so on
    columns: Order | None = None  # as `order`, of columns

    @property
    def num_weights(self) -> int:
        return prod(self.shape)


class Matrix(NamedTuple):
    """A matrix [rows, columns] of parts that are stacked, and its bias, if it has one."""

    parts: tuple[Part, ...]
    bias: tuple[Part, ...] = ()
    is_exact: bool = False  # small, and never rounded to fewer bits


class MixerTensors(NamedTuple):
    """Of a layer's mixer."""

    matrices: dict[str, Matrix]  # by their roles, but for the output's
    output: Matrix
    norms: dict[str, Part]  # by their roles; they multiply, so 1 changes nothing
    further: dict[str, Part]  # all else, in float32 at least
    unread: tuple[str, ...] = ()  # beginnings of names that files may have besides, and that nothing needs


def stacked(
    prefix: str, names: tuple[str, ...], rows: tuple[int, ...], columns: int, has_bias: bool = False,
    order: HeadOrder | None = None,
) -> Matrix:  # fmt: skip
    """A file that keeps all rows in one tensor has one name for it. order: of a head, in all rows but the last."""
    ordered = (*rows[:-1], 0)
    if len(names) < len(rows):
        rows, ordered = (sum(rows),), (sum(ordered),)
    orders = [order._replace(num_heads=n // order.head_dim) if order and n else None for n in ordered]
    stored = list(zip(names, rows, orders, strict=True))
    return Matrix(
        tuple(Part(f"{prefix}{name}.weight", (count, columns), order) for name, count, order in stored),
        tuple(Part(f"{prefix}{name}.bias", (count,), order) for name, count, order in stored) if has_bias else (),
    )
