from chairlift.core.memory.pool import BlockPool
from chairlift.core.packed import packed

ROOT = ""


def test_blocks_taken_and_released_are_free_again() -> None:
    pool = BlockPool(4, 2)
    blocks = pool.take(3)
    pool.check([blocks])
    assert pool.num_free == 1
    pool.release(blocks)
    pool.check([])
    assert pool.num_free == 4


def test_a_shared_block_is_free_only_after_the_last_release() -> None:
    pool = BlockPool(2, 2)
    blocks = pool.take(1)
    pool.share(blocks)
    pool.release(blocks)
    assert pool.num_free == 1
    pool.release(blocks)
    assert pool.num_free == 2


def test_blocks_saved_are_table_entries_less_blocks_held() -> None:
    pool = BlockPool(4, 2)
    first = pool.take(2)
    pool.share(first)
    pool.share(first[:1])
    assert (pool.num_shared, pool.max_shared) == (3, 3)
    pool.release(first)
    pool.check([first, first[:1]])
    assert (pool.num_shared, pool.max_shared) == (1, 3)
    pool.release(first)
    assert pool.num_shared == 0
    pool.publish(first[0], ROOT, packed((1, 2)))
    pool.release(first[:1])
    pool.share(first[:1])  # a prefix that no table listed
    assert pool.num_shared == 0


def test_a_released_prefix_is_found_again() -> None:
    pool = BlockPool(4, 2)
    a, b = pool.take(2)
    first = pool.publish(a, ROOT, packed((1, 2)))
    second = pool.publish(b, first, packed((3, 4)))
    pool.release([a, b])
    assert pool.find(ROOT, packed([1, 2, 3, 4, 5]), 5)[:3] == ([a, b], second, ())
    assert pool.find(ROOT, packed([1, 2, 3, 4]), 3)[:3] == ([a], first, ())
    assert pool.find(ROOT, packed([1, 2, 9, 9]), 4)[:3] == ([a], first, ())


def test_the_same_tokens_after_another_prefix_are_not_a_hit() -> None:
    pool = BlockPool(4, 2)
    a, b = pool.take(2)
    pool.publish(b, pool.publish(a, ROOT, packed((1, 2))), packed((3, 4)))
    assert pool.find(ROOT, packed([3, 4, 3, 4]), 4)[:3] == ([], ROOT, ())


def test_other_salts_do_not_see_a_prefix() -> None:
    pool = BlockPool(4, 2)
    (a,) = pool.take(1)
    pool.publish(a, "mine", packed((1, 2)))
    assert pool.find("mine", packed([1, 2, 3]), 2)[0] == [a]
    assert pool.find("yours", packed([1, 2, 3]), 2)[0] == []


def test_blank_blocks_are_used_before_cached_ones_and_the_oldest_release_first() -> None:
    pool = BlockPool(3, 1)
    a, b, c = pool.take(3)
    pool.publish(a, ROOT, packed((1,)))
    pool.publish(b, ROOT, packed((2,)))
    pool.release([b])
    pool.release([a])
    pool.release([c])
    assert pool.take(1) == [c]
    assert pool.take(1) == [b]
    assert pool.find(ROOT, packed([2]), 1)[0] == []
    assert pool.find(ROOT, packed([1]), 1)[0] == [a]


def test_what_is_renewed_is_overwritten_after_what_was_released_before() -> None:
    pool = BlockPool(3, 2)
    blocks = pool.take(3)
    for block in blocks:
        pool.publish(block, ROOT, packed((block, 9)))
        pool.release([block])
    pool.renew([*pool.take(1), blocks[1]])
    assert pool.take(1) == [blocks[2]]


def test_the_tail_of_a_text_is_overwritten_before_its_beginning() -> None:
    pool = BlockPool(2, 1)
    a, b = pool.take(2)
    pool.publish(b, pool.publish(a, ROOT, packed((1,))), packed((2,)))
    pool.release([a, b])
    pool.take(1)
    assert pool.find(ROOT, packed([1, 2]), 2)[0] == [a]


def test_a_second_copy_of_a_prefix_stays_private_and_keeps_its_name() -> None:
    pool = BlockPool(2, 1)
    a, b = pool.take(2)
    name = pool.publish(a, ROOT, packed((1,)))
    assert pool.publish(b, ROOT, packed((1,))) == name
    pool.release([b])
    assert pool.num_cached == 0


def test_a_block_indexed_under_a_forgotten_prefix_keeps_its_first_name() -> None:
    pool = BlockPool(3, 1)
    a, copy, b = pool.take(3)
    name = pool.publish(a, ROOT, packed((1,)))
    assert pool.publish(copy, ROOT, packed((1,))) == name
    pool.publish(b, name, packed((2,)))
    pool.release([a])
    (reused,) = pool.take(1)  # the first block's entry is gone
    assert reused == a
    renamed = pool.publish(copy, ROOT, packed((1,)))
    pool.publish(b, renamed, packed((2,)))
    pool.check([[copy, b], [reused]])


def test_without_an_index_nothing_is_found() -> None:
    pool = BlockPool(2, 1, has_prefix_index=False)
    assert pool.find(ROOT, packed([1]), 1)[:3] == ([], ROOT, ())


def test_forgetting_leaves_the_prefixes_that_tables_list() -> None:
    pool = BlockPool(4, 2)
    first, other = pool.take(1), pool.take(1)
    pool.publish(other[0], pool.publish(first[0], ROOT, packed((1, 2))), packed((3, 4)))
    pool.release(other)
    assert not pool.forget()
    pool.check([first])
    assert pool.find(ROOT, packed((1, 2, 3, 4)), 4).blocks == first
    pool.release(first)
    assert pool.forget()
    assert (pool.num_cached, pool.num_free) == (0, 4)
