"""The blocks of a pool as a map: a row of cells in the order of the blocks.

Always: at most `MAX_CELLS` cells, made from at most `MAX_LOOKS` blocks; in a larger pool a cell samples its blocks.
Exact counts are in the ticks.

    held    "0099940..."   a cell's share of held blocks, in ninths
    cached  "9900040..."   its share of free blocks that still hold a prefix
"""

import msgspec

from chairlift.core.ids import BlockId
from chairlift.core.memory.pool import BlockPool

MAX_CELLS = 480
MAX_LOOKS = 1920


class BlockMap(msgspec.Struct, frozen=True):
    blocks: int
    per_cell: int
    held: str
    cached: str


def draw(pool: BlockPool) -> BlockMap:
    num, counts = pool.num_blocks, pool.counts
    per_cell = max(1, -(-num // MAX_CELLS))
    stride = max(1, -(-num // MAX_LOOKS))
    held, cached = [], []
    for start in range(0, num, per_cell):
        looks = range(start, min(start + per_cell, num), stride)
        free = [block for block in looks if not counts[block]]
        num_cached = sum(pool.is_indexed(BlockId(block)) for block in free)
        held.append(str(9 * (len(looks) - len(free)) // len(looks)))
        cached.append(str(9 * num_cached // len(looks)))
    return BlockMap(num, per_cell, "".join(held), "".join(cached))
