"""Products whose rows have the same bits in any batch, by a library whose sums change with the number of rows.

A library picks its way by the shape of a product. So products run only in blocks of row counts that were found to give
every row the bits that blocks of 16 give it, wherever in the block it stands:

    70 rows, counts 1, 16, 32:    | 32 | 32 | 6 and 10 of zeros |

Always: which counts those are depends on shape, number type and placement of a matrix alone, and is found by trying,
on a matrix's first use. A library that gives not even blocks of 16 such rows is refused.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.ops import Weight

Product = Callable[[Tensor], Tensor]
Found = dict[tuple[object, ...], tuple[int, ...]]  # row counts by what they depend on

_ROWS = 16
_COUNTS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
_ALIGNMENT = 64  # of memory, in bytes: a library may take another way from other places
_SHIFT = 5


class FixedRowsWeight:
    """A matrix multiplied in fixed row counts. `found` is shared by the matrices of a model: trying takes as long as a
    prompt of 1,000 tokens, and matrices of one kind need it once."""

    def __init__(self, weight: Weight, matrix: Tensor, bias: Tensor | None, found: Found) -> None:
        self._weight = weight
        self._kind = (matrix.shape, matrix.dtype, matrix.data_ptr() % _ALIGNMENT, bias is None)
        self._found = found

    def linear(self, x: Tensor) -> Tensor:
        return self._multiply("linear", self._weight.linear, x)

    def logits(self, x: Tensor) -> Tensor:
        return self._multiply("logits", self._weight.logits, x)

    def rows(self, ids: Tensor) -> Tensor:
        return self._weight.rows(ids)

    def _multiply(self, name: str, product: Product, x: Tensor) -> Tensor:
        kind = (name, *self._kind)
        counts = self._found.get(kind)
        if counts is None:
            counts = self._found[kind] = equal_counts(product, x.shape[-1], x.dtype)
        return in_blocks(product, x, counts)


def equal_counts(product: Product, width: int, dtype: torch.dtype) -> tuple[int, ...]:
    """The row counts, largest first, whose products have the bits that blocks of 16 have."""
    source = torch.Generator().manual_seed(1)
    x = torch.randn((_COUNTS[0], width), generator=source).to(dtype)
    wanted = torch.cat([product(block) for block in x.split(_ROWS)])
    is_same = all(
        torch.equal(product(x[first : first + _ROWS].roll(_SHIFT, 0)).roll(-_SHIFT, 0), wanted[first : first + _ROWS])
        for first in (0, 2 * _ROWS)
    )
    counts = tuple(count for count in _COUNTS if is_same and _is_equal(product, x, wanted, count))
    if not counts:
        raise InvalidConfig(
            f"exact: this processor's library gives a row of {width} other bits at another place of a batch; "
            "leave --exact out"
        )
    return counts


def _is_equal(product: Product, x: Tensor, wanted: Tensor, count: int) -> bool:
    # The first two blocks and, of small ones, two from the middle.
    firsts = {first for at in (0, len(x) // 2) for first in (at, at + count) if first + count <= len(x)}
    return all(
        torch.equal(product(x[first : first + count].clone()), wanted[first : first + count])
        for first in sorted(firsts)
    )


def in_blocks(product: Product, x: Tensor, counts: tuple[int, ...]) -> Tensor:
    """product(x [T, in]) -> [T, out], in blocks of these row counts; the last is padded to the least that holds it."""
    num_rows = len(x)
    if num_rows in counts and x.is_contiguous() and x.data_ptr() % _ALIGNMENT == 0:
        return product(x)
    blocks = []
    first = 0
    while first < num_rows:
        rest = num_rows - first
        largest = next((count for count in counts if count <= rest), counts[-1])
        holding = next((count for count in reversed(counts) if count >= rest), largest)
        # Padding is worth it while it computes no more rows than it saves calls.
        count = holding if holding < 2 * rest or largest > rest else largest
        block = x[first : first + count]
        blocks.append(product(F.pad(block, (0, 0, 0, count - len(block))) if len(block) < count else block.clone()))
        first += count
    return torch.cat(blocks)[:num_rows] if blocks else product(x)
