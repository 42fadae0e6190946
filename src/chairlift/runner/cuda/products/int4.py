"""Matrices of 4 bits as products on a GPU read them: tiles of 64 outputs and 64 columns, thread by thread.

    tile      2,048 bytes: sixteen of each thread, warps one after the other; tiles follow each other along the columns
    thread    4 warp + lane / 4 is its line, of which it has also the one 8 on; 2 (lane % 4) and the next its columns
    byte      the code of a line in the low half, of the line 8 on in the high one
    sixteen   columns 16 on, 8 on, 1 on, 32 on: the last changes first

Those are the numbers that a thread hands to the tensor cores, in their order. Scales and zeros: [tiles, groups, 64].
Where a matrix has two parts as high as each other, of a gate and what it gates, a tile has 32 lines of either.

Always: a number is (code - zero) * scale, rounded once to the model's type.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from chairlift.runner.cuda.products.int4_kernel import widen_int4_kernel
from chairlift.runner.cuda.products.packed import Packed

TILE = 64  # outputs, and columns
_GROUP = 32  # columns: scales are the same of so many at least
_BYTES = 128  # of a line of the matrix that the copy engine sees
_DIMS = 4, 8, 4, 2, 2, 2, 2  # of a tile's bytes: warp, line, columns by 2, 16 on, 8 on, 1 on, 32 on


@dataclass(frozen=True, slots=True)
class Int4:
    codes: Tensor  # uint8 [bytes / 128, 128]
    scales: Tensor  # [tiles, groups, 64]
    zeros: Tensor | None  # uint8, as scales; None: `zero` everywhere
    zero: int
    num_rows: int
    columns: int
    is_paired: bool

    @property
    def group(self) -> int:
        return self.columns // self.scales.shape[1]

    @property
    def num_tiles(self) -> int:
        """Of lines."""
        return len(self.scales)

    def widen(self, out: Tensor, first: int = 0, count: int = 0) -> None:
        """Into out [rows, columns], or so many tiles of lines as they lie."""
        is_paired, num_rows = self.is_paired and not count, self.num_rows - first * TILE
        widen_int4_kernel[(self.columns // TILE, count or self.num_tiles)](
            self.codes, self.scales, self.zeros, out, self.zero, first, num_rows, self.columns, self.scales.shape[1],
            self.group, IS_PAIRED=is_paired, HAS_ZEROS=self.zeros is not None, num_warps=4,
        )  # fmt: skip

    def in_order(self, product: Tensor) -> Tensor:
        """Of outputs as tiles have them."""
        if self.is_paired:
            return product.view(len(product), -1, 2, TILE // 2).transpose(1, 2).reshape(len(product), -1)
        return product[:, : self.num_rows]

    def rows(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        if self.is_paired:
            half, rest = self.num_rows // 2, ids % (self.num_rows // 2)
            ids = rest // 32 * TILE + rest % 32 + 32 * (ids // half)
        tile, line = ids // TILE, ids % TILE
        found = self.codes.view(self.num_tiles, -1, *_DIMS)[tile, :, line // 16, line % 8]
        codes = found >> (4 * (line // 8 % 2)).view(-1, *[1] * 6) & 15
        codes = codes.permute(0, 1, 6, 3, 4, 2, 5).reshape(len(ids), self.scales.shape[1], -1).float()
        zeros = self.zero if self.zeros is None else self.zeros[tile, :, line][..., None].float()
        return ((codes - zeros) * self.scales[tile, :, line][..., None].float()).view(len(ids), -1).to(dtype)


def int4(packed: Packed, is_paired: bool = False) -> Int4 | None:
    """None: its numbers are of another kind."""
    codes, table, groups = packed.codes, packed.table, packed.scales.shape[1]
    num_rows, width = packed.num_rows, packed.columns
    if table is None or packed.factors is not None or packed.powers or packed.order is not None:
        return None
    if packed.scales.element_size() != 2 or width % (2 * TILE) or width // groups % _GROUP:
        return None
    zero = -int(table[0])
    if not torch.equal(table.cpu() + zero, torch.arange(16.0)):
        return None
    is_paired = is_paired and num_rows % TILE == 0

    def lines(tensor: Tensor) -> Tensor:
        if is_paired:
            return tensor.view(2, -1, TILE // 2, tensor.shape[1]).transpose(0, 1).reshape(tensor.shape)
        return torch.nn.functional.pad(tensor, (0, 0, 0, -num_rows % TILE))

    def by_tile(tensor: Tensor) -> Tensor:
        return lines(tensor).view(-1, TILE, groups).transpose(1, 2).contiguous()

    zeros = None if packed.zeros is None else by_tile(packed.zeros.view(torch.uint8))
    return Int4(
        _tiles(lines(codes), width), by_tile(packed.scales), zeros, zero, num_rows, width, is_paired
    )  # fmt: skip


def _tiles(codes: Tensor, width: int) -> Tensor:
    """codes: [lines, columns / 2], the low half of a byte first."""
    # Of a pair of columns both bytes: [tiles, warp, 8 on, line, tiles of columns, 32 on, 16 on, 8 on, columns, 1 on]
    single = torch.stack((codes & 15, codes >> 4), dim=-1).view(-1, 4, 2, 8, width // TILE, 2, 2, 2, 4, 2)
    both = single[:, :, 0] | single[:, :, 1] << 4
    return both.permute(0, 3, 1, 2, 7, 5, 6, 8, 4).reshape(-1, _BYTES)
