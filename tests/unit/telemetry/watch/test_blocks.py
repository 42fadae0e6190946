import pytest

from chairlift.core.memory.pool import BlockPool
from chairlift.core.packed import packed
from chairlift.telemetry.watch.blocks import MAX_CELLS, draw


def test_of_few_blocks_each_has_its_cell() -> None:
    pool = BlockPool(6, 2)
    held = pool.take(4)
    pool.publish(held[0], "", packed((1, 2)))
    pool.release(held[:2])
    drawn = draw(pool)
    assert (drawn.blocks, drawn.per_cell) == (6, 1)
    assert drawn.held == "009900"
    assert drawn.cached == "900000"


@pytest.mark.parametrize("num_blocks", [0, 1, 479, 481, 5000, 200_001])
def test_many_blocks_share_cells(num_blocks: int) -> None:
    pool = BlockPool(num_blocks, 2)
    pool.take(num_blocks // 2)
    drawn = draw(pool)
    assert len(drawn.held) == len(drawn.cached) <= MAX_CELLS
    assert len(drawn.held) * drawn.per_cell >= num_blocks
    if num_blocks > 1000:
        full = drawn.held.count("9")
        assert full / len(drawn.held) == pytest.approx(0.5, abs=0.01)
