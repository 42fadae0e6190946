"""Products whose rows have the same bits in any batch, by a library whose sums change with the number of rows.

A library picks its way by the shape of a product. So products run only in blocks of row counts that were found to give
every row the bits that blocks of 16 give it, wherever in the block it stands:

    70 rows, counts 1, 16, 32:    | 32 | 32 | 6 and 10 of zeros |

Always: which counts those are depends on shape, number type and placement of a matrix alone, and is found by trying,
on a matrix's first use, with numbers that show any other sum (`cancelling.py`). A library that gives not even blocks of
16 such rows is refused.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.ops import MakeWeight, Weight
from chairlift.runner.torch.cancelling import ALIGNMENT, cancelling

Product = Callable[[Tensor], Tensor]
RowCounts = dict[tuple[object, ...], tuple[int, ...]]  # row counts by what they depend on

_ROWS = 16
_COUNTS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
_SHIFT = 5
_ENOUGH = 1024  # outputs of each count that are compared: other sums show in most of them


class FixedRowsWeight:
    """A matrix multiplied in fixed row counts. `found` is shared by the matrices of a model: trying takes as long as a
    prompt of 1,000 tokens and memory for a second such matrix, and matrices of one kind need it once."""

    def __init__(self, make: MakeWeight, matrix: Tensor, bias: Tensor | None, found: RowCounts) -> None:
        matrix = matrix.contiguous()
        self._make = make
        self._shape, self._dtype = matrix.shape, matrix.dtype
        self._place = matrix.data_ptr() % ALIGNMENT
        self._has_bias = bias is not None
        self._is_table = False  # an embedding too, which may be multiplied in another way
        self._weight = make(matrix, bias)
        self._found = found

    def linear(self, x: Tensor) -> Tensor:
        return self._multiply("linear", x)

    def logits(self, x: Tensor) -> Tensor:
        return self._multiply("logits", x)

    def rows(self, ids: Tensor) -> Tensor:
        self._is_table = True
        return self._weight.rows(ids)

    def _multiply(self, name: str, x: Tensor) -> Tensor:
        kind = (name, self._shape, self._dtype, self._place, self._has_bias, self._is_table)
        counts = self._found.get(kind)
        if counts is None:
            counts = self._found[kind] = self._try(name)
        return in_blocks(_product(self._weight, name), x, counts)

    def _try(self, name: str) -> tuple[int, ...]:
        matrix, bias, x = cancelling(self._shape, self._dtype, self._place, self._has_bias, _COUNTS[0])
        weight = self._make(matrix, bias)
        if self._is_table:
            weight.rows(torch.zeros(1, dtype=torch.int64))
        return equal_counts(_product(weight, name), x)


def _product(weight: Weight, name: str) -> Product:
    return weight.linear if name == "linear" else weight.logits


def equal_counts(product: Product, x: Tensor) -> tuple[int, ...]:
    """The row counts, largest first, whose products have the bits that blocks of 16 have. x: as many as the largest."""
    wanted = torch.cat([product(block) for block in x.split(_ROWS)])
    is_same_anywhere = all(
        torch.equal(product(x[first : first + _ROWS].roll(_SHIFT, 0)).roll(-_SHIFT, 0), wanted[first : first + _ROWS])
        for first in (0, 2 * _ROWS)
    )
    counts = tuple(count for count in _COUNTS if _is_equal(product, x, wanted, count))
    if not is_same_anywhere or _ROWS not in counts:
        raise InvalidConfig(
            f"exact: this processor's library gives a row of {x.shape[1]} other bits at another place of a batch; "
            "leave --exact out"
        )
    return counts


def _is_equal(product: Product, x: Tensor, wanted: Tensor, count: int) -> bool:
    # At least two blocks, the first and one from the middle; of matrices with few outputs more.
    firsts = range(0, len(x), count)
    num_tried = max(2, _ENOUGH // (count * wanted.shape[1]))
    return all(
        torch.equal(product(x[first : first + count].clone()), wanted[first : first + count])
        for first in firsts[:: max(1, len(firsts) // num_tried)]
    )


def in_blocks(product: Product, x: Tensor, counts: tuple[int, ...]) -> Tensor:
    """product(x [T, in]) -> [T, out], in blocks of these row counts; the last is padded to the least that holds it."""
    num_rows = len(x)
    if num_rows in counts and x.is_contiguous() and x.data_ptr() % ALIGNMENT == 0:
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
