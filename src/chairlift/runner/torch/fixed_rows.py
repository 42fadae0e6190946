"""Products whose rows have the same bits in any batch, by a library whose sums depend on the number of rows.

Products run only in blocks of row counts that were found to give every row the bits of blocks of 16, at any index:

    70 rows, counts 1, 16, 32:    | 32 | 32 | 6 and 10 of zeros |

Always: these counts depend on the shape, number type and alignment of a matrix alone. They are found on its first use,
with numbers that show any other order of a sum (`cancelling.py`). A library for which 16 does not work is refused.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.ops import MakeWeight
from chairlift.runner.torch.cancelling import ALIGNMENT, cancelling

Product = Callable[[Tensor], Tensor]
RowCounts = dict[tuple[object, ...], tuple[int, ...]]  # row counts by what they depend on

_ROWS = 16
_COUNTS = (256, 128, 64, 32, 16, 8, 4, 2, 1)
_SHIFT = 5
_ENOUGH = 1024  # outputs of each count to compare: most show another sum


class FixedRowsWeight:
    """A matrix multiplied in fixed row counts. `found` is shared by the matrices of a model: a trial takes as long as a
    prompt of 1,000 tokens and memory for a second matrix, once for each kind of matrix."""

    def __init__(self, make: MakeWeight, matrix: Tensor, bias: Tensor | None, found: RowCounts) -> None:
        matrix = matrix.contiguous()
        self._make = make
        self._kind = (matrix.shape, matrix.dtype, matrix.data_ptr() % ALIGNMENT, bias is not None)
        self._is_table = False  # embeddings may be multiplied in another way
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
        kind = (name, self._is_table, *self._kind)
        counts = self._found.get(kind)
        if counts is None:
            counts = self._found[kind] = self._try(name)
        return in_blocks(getattr(self._weight, name), x, counts)

    def _try(self, name: str) -> tuple[int, ...]:
        matrix, bias, x = cancelling(*self._kind, _COUNTS[0])
        weight = self._make(matrix, bias)
        if self._is_table:
            weight.rows(torch.zeros(1, dtype=torch.int64))
        return equal_counts(getattr(weight, name), x)


def equal_counts(product: Product, x: Tensor) -> tuple[int, ...]:
    """The row counts, largest first, whose products have the bits of blocks of 16. x: as many rows as the largest."""
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
    # At least the first block and one from the middle; more for matrices with few outputs.
    firsts = range(0, len(x), count)
    num_tried = max(2, _ENOUGH // (count * wanted.shape[1]))
    return all(
        torch.equal(product(x[first : first + count].clone()), wanted[first : first + count])
        for first in firsts[:: max(1, len(firsts) // num_tried)]
    )


def in_blocks(product: Product, x: Tensor, counts: tuple[int, ...]) -> Tensor:
    """product(x [T, in]) -> [T, out], in blocks of these row counts, the last one padded."""
    num_rows = len(x)
    if num_rows in counts and x.is_contiguous() and x.data_ptr() % ALIGNMENT == 0:
        return product(x)
    blocks = []
    first = 0
    while first < num_rows:
        rest = num_rows - first
        largest = next((count for count in counts if count <= rest), counts[-1])
        holding = next((count for count in reversed(counts) if count >= rest), largest)
        # Padding pays while less than half of the block is padding.
        count = holding if holding < 2 * rest or largest > rest else largest
        block = x[first : first + count]
        blocks.append(product(F.pad(block, (0, 0, 0, count - len(block))) if len(block) < count else block.clone()))
        first += count
    return torch.cat(blocks)[:num_rows] if blocks else product(x)
