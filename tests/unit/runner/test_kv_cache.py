from itertools import chain

import pytest
import torch

from chairlift.core.ids import BlockId
from chairlift.core.plan import BlockCopy
from chairlift.runner.kv_cache import KvCache, kv_bytes_per_block
from fakes.worlds.models import CONFIG

CPU = torch.device("cpu")


def moves(*pairs: tuple[int, int]) -> list[BlockCopy]:
    return [BlockCopy(BlockId(source), BlockId(target)) for source, target in pairs]


def numbered(num_host_blocks: int = 0) -> KvCache:
    """Block b of the keys of layer l holds 100 * l + b, and of the values 1000 more."""
    kv = KvCache(CONFIG, 6, 4, torch.float32, CPU, num_host_blocks)
    for layer, (keys, values) in enumerate(kv.state):
        for block in range(6):
            keys[block], values[block] = 100 * layer + block, 1000 + 100 * layer + block
    return kv


def contents(kv: KvCache) -> list[list[int]]:
    """What each memory holds, block by block; a block must hold one number only."""
    memories = list(chain(*kv.state))
    assert all((memory == memory[:, :1, :1, :1]).all() for memory in memories)
    return [memory[:, 0, 0, 0].int().tolist() for memory in memories]


def test_a_block_copied_is_the_same_in_every_layer_and_leaves_the_others() -> None:
    kv = numbered()
    kv.move_blocks(copies=moves((1, 4), (2, 5)))
    assert contents(kv) == [[base, base + 1, base + 2, base + 3, base + 1, base + 2] for base in (0, 1000, 100, 1100)]


def test_blocks_swapped_out_come_back_to_other_blocks() -> None:
    kv = numbered(num_host_blocks=3)
    kv.move_blocks(swap_outs=moves((1, 2), (4, 0)))
    for memory in chain(*kv.state):
        memory.fill_(-1)
    kv.move_blocks(swap_ins=moves((2, 5), (0, 0)))
    assert contents(kv) == [[base + 4, -1, -1, -1, -1, base + 1] for base in (0, 1000, 100, 1100)]


def test_a_block_may_be_swapped_out_and_overwritten_by_one_swapped_in() -> None:
    kv = numbered(num_host_blocks=2)
    kv.move_blocks(swap_outs=moves((0, 0)))
    kv.move_blocks(swap_outs=moves((3, 1)))
    kv.move_blocks(swap_ins=moves((0, 3)))
    assert [memory[3] for memory in contents(kv)] == [0, 1000, 100, 1100]


def test_no_moves_change_nothing() -> None:
    kv = numbered()
    before = contents(kv)
    kv.move_blocks(copies=[])
    kv.move_blocks(swap_outs=[])
    kv.move_blocks(swap_ins=[])
    assert contents(kv) == before


def test_blocks_in_fp8_are_moved_as_they_are() -> None:
    kv = KvCache(CONFIG, 4, 4, torch.float8_e4m3fn, CPU, num_host_blocks=1)
    for number, memory in enumerate(chain(*kv.state)):
        memory.view(torch.uint8).copy_((torch.arange(memory.numel()) + number).view_as(memory))
    before = [memory.view(torch.uint8).clone() for memory in chain(*kv.state)]
    kv.move_blocks(copies=moves((0, 3)))
    kv.move_blocks(swap_outs=moves((1, 0)))
    kv.move_blocks(swap_ins=moves((0, 2)))
    for memory, was in zip(chain(*kv.state), before, strict=True):
        assert torch.equal(memory.view(torch.uint8), was[[0, 1, 1, 0]])


@pytest.mark.parametrize("block_size", [1, 16])
def test_a_block_takes_the_bytes_it_is_said_to_take(block_size: int) -> None:
    kv = KvCache(CONFIG, 3, block_size, torch.bfloat16, CPU)
    taken = sum(memory.numel() * memory.element_size() for memory in chain(*kv.state))
    assert taken == 3 * kv_bytes_per_block(CONFIG, block_size, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8])
def test_blocks_travel_to_another_cache_as_bytes(dtype: torch.dtype) -> None:
    one, two = (KvCache(CONFIG, 4, 4, dtype, CPU, num_host_blocks=3) for _ in range(2))
    memories = [(*chain(*kv.state), kv.tokens) for kv in (one, two)]
    for number, memory in enumerate(memories[0]):
        as_bytes = memory.view(torch.uint8)
        as_bytes.copy_((7 * torch.arange(as_bytes.numel()) + number).view_as(as_bytes))
    one.move_blocks(swap_outs=moves((2, 0), (1, 2)))
    assert one.host.layout == two.host.layout
    piece = memoryview(bytearray(2 * one.host.block_bytes))
    one.host.read([BlockId(0), BlockId(2)], piece)
    two.host.write([BlockId(1), BlockId(0)], piece)
    two.move_blocks(swap_ins=moves((1, 3), (0, 0)))
    for mine, theirs in zip(*memories, strict=True):
        assert torch.equal(mine.view(torch.uint8)[[2, 1]], theirs.view(torch.uint8)[[3, 0]])


def test_caches_that_differ_have_other_layouts() -> None:
    layouts = {
        KvCache(CONFIG, 2, size, dtype, CPU).host.layout
        for size in (4, 8)
        for dtype in (torch.float32, torch.bfloat16, torch.int8)
    }
    assert len(layouts) == 6
