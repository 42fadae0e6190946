from dataclasses import replace

import pytest
import torch

from chairlift.config.settings import Settings
from chairlift.core.limits import Limits
from chairlift.models.spec import uniform_model
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.dependent_launch import FEW
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS, GraphKey, GraphKeys, ladder, max_graphs, max_tiles
from chairlift.runner.memory.sizing import limits_without_pool


def make_limits(max_running: int, max_model_len: int, max_step_tokens: int = 4096) -> Limits:
    return Limits(
        vocab_size=9, max_model_len=max_model_len, block_size=4, num_blocks=9, max_running=max_running,
        max_step_tokens=max(max_running, max_step_tokens),
    )  # fmt: skip


def make_keys(max_running: int, max_model_len: int, max_step_tokens: int = 4096) -> GraphKeys:
    return GraphKeys(make_limits(max_running, max_model_len, max_step_tokens), has_groups=True, exact=False)


def decodes(keys: GraphKeys, count: int, max_context: int = 1) -> GraphKey:
    key = keys.of(count, count, max_context, 0, count)
    assert key is not None
    return key


@pytest.mark.parametrize("longest", [3, 48, 64, 65, 300, 512, 5000])
def test_decodes_in_short_contexts_are_prepared_however_long_contexts_may_be(longest: int) -> None:
    wanted = {GraphKey(rung, rung, choose_tiling(rung, 1 << (n - 1).bit_length(), True), 0, min(rung, 32))
              for rung in (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 104, 136) for n in range(1, longest + 1)}  # fmt: skip
    assert {key for key in make_keys(6, longest).likely if not key.num_tiles} == wanted


def test_any_number_of_decodes_is_prepared() -> None:
    for max_running in (1, 6, 511, 600, 1024, 3000):
        keys = make_keys(max_running, 100)
        assert {decodes(keys, count, 64) for count in range(1, max_running + 1)} <= set(keys.likely)


def test_a_step_is_padded_to_the_next_rung_and_not_beyond_the_last() -> None:
    keys = make_keys(6, 100, max_step_tokens=2000)
    found = [keys.of(count, 1, 1, 0, 1) for count in (1, 3, 17, 512, 513, 1025, 1990, 2001)]
    assert [key and key.num_tokens for key in found] == [1, 4, 24, 512, 568, 1144, 2000, None]
    assert keys.max_tokens == 2000


def test_with_tiles_it_is_padded_to_fewer_rungs_and_the_last() -> None:
    keys = make_keys(6, 100, max_step_tokens=270)
    found = [keys.of(count, 1, 1, 1, 1) for count in (1, 65, 129, 256, 270, 300)]
    assert [key and key.num_tokens for key in found] == [64, 104, 152, 256, 280, None]
    small = make_keys(6, 100, max_step_tokens=6).of(3, 1, 1, 1, 1)
    assert small is not None and small.num_tokens == 8


def test_a_step_of_few_rows_is_that_of_as_many_decodes_whatever_of_it_is_sampled() -> None:
    tiling = choose_tiling(24, 64, True)
    for max_running in (6, 200):
        keys = make_keys(max_running, 5000)
        found = [keys.of(20, 20, 40, 0, num_samples) for num_samples in (0, 1, 5, 13, 20)]
        assert set(found) == {GraphKey(24, 24, tiling, 0, 24)}
        for num_tokens in range(1, 137):  # short prompts beside decodes
            for context in (1, 200, 5000):
                assert keys.of(num_tokens, num_tokens, context, 0, 1) in keys.likely


def test_samples_of_more_rows_are_padded_to_a_power_of_two_or_to_the_tokens() -> None:
    keys = make_keys(600, 100)
    found = [keys.of(500, 500, 40, 0, num_samples) for num_samples in (0, 1, 64, 65, 200, 257)]
    assert [key and key.num_samples for key in found] == [64, 64, 64, 128, 256, 512]


def test_there_is_room_for_all_samples_of_a_step_and_never_for_more_than_are_kept() -> None:
    for max_running in (6, 256, 512):
        keys = make_keys(max_running, 5000)
        for num_tokens in range(1, keys.max_tokens, 31):
            for num_samples in {1, num_tokens // 3, num_tokens // 2 + 1, num_tokens, max_running, keys.max_samples}:
                if num_samples <= min(num_tokens, keys.max_samples):
                    key = keys.of(num_tokens, num_tokens, 9, 0, num_samples)
                    assert key is not None and num_samples <= key.num_samples <= keys.max_samples


def test_a_step_with_tiles_has_room_for_some_more_samples_than_rows() -> None:
    keys = make_keys(256, 5000)
    tiles = max_tiles(1024)
    found = [keys.of(1000, num_short, 9, 15, num_samples) for num_short, num_samples in
             ((0, 1), (16, 32), (17, 1), (1, 33), (64, 80), (60, 81), (200, 9))]  # fmt: skip
    wanted = [16, 16, 64, 64, 64, 256, 256]
    assert found == [GraphKey(1024, rows, choose_tiling(rows, 4096, True), tiles, rows + 16) for rows in wanted]


def test_contexts_beside_tiles_are_padded_to_a_power_of_four_and_no_more_than_the_longest() -> None:
    limits, asked = make_limits(256, 5000), (0, 1024, 1025, 4096, 4097)
    for has_groups, wanted in ((True, (4096, 4096, 4096, 4096, 8192)), (False, (1024, 1024, 4096, 4096, 8192))):
        keys = GraphKeys(limits, has_groups, exact=False)
        found = [keys.of(1000, 20, max_context, 15, 1) for max_context in asked]
        assert [key and key.tiling for key in found] == [choose_tiling(64, each, has_groups) for each in wanted]


def test_steps_with_prompts_are_prepared_behind_decodes() -> None:
    keys = make_keys(256, 5000)
    first = next(index for index, key in enumerate(keys.likely) if key.num_tiles)
    prompts = keys.likely[first:]
    assert all(key.num_tiles for key in prompts)
    for count in range(1, 1025, 31):
        for num_rows in (0, 16, 64, 256):
            found = {keys.of(count, min(count, num_rows), context, 1, 1) for context in (0, 4096, 5000)}
            assert found <= set(prompts)
    assert len(keys.likely) < MAX_GRAPHS


@pytest.mark.parametrize("has_groups", [False, True])
def test_what_is_likely_by_default_can_be_kept(has_groups: bool) -> None:
    model = uniform_model(
        architecture="LlamaForCausalLM", hidden_size=64, num_layers=1, num_heads=4, num_kv_heads=4, head_dim=16,
        intermediate_size=64, vocab_size=64, max_model_len=40960, rms_norm_eps=1e-5, rope_theta=10000.0,
    )  # fmt: skip
    limits = limits_without_pool(Settings(), model, torch.device("cuda"), memory=80 << 30)
    assert len(GraphKeys(limits, has_groups, exact=False).likely) < MAX_GRAPHS
    adapted = replace(limits, num_adapter_slots=8)
    likely = GraphKeys(adapted, has_groups, exact=False).likely
    assert len(likely) < max_graphs(adapted)
    assert {key._replace(has_adapters=True) for key in likely} | {
        key._replace(has_adapters=False) for key in likely
    } == {*likely}


def test_no_other_step_takes_more_than_the_largest() -> None:
    for max_running, max_step_tokens in ((6, 6), (6, 100), (100, 300), (256, 4096), (3000, 4096)):
        keys = make_keys(max_running, 5000, max_step_tokens)
        largest = keys.largest
        assert (largest.num_tokens, largest.num_samples) == (keys.max_tokens, min(keys.max_tokens, keys.max_samples))
        assert keys.of(keys.max_tokens, max_running, 5000, 1, max_running) in (largest, None)
        assert all(key.num_tokens <= largest.num_tokens and key.num_tiles <= largest.num_tiles for key in keys.likely)
        assert all(key.num_samples <= keys.max_samples for key in (largest, *keys.likely))
        most = max(rung for rung in keys.ladder if rung <= max(keys.max_decodes, 136))
        assert most == max(key.num_tokens for key in keys.likely if not key.num_tiles)


def test_a_step_of_more_tiles_or_samples_than_were_captured_is_not() -> None:
    keys = make_keys(256, 5000)
    assert keys.of(1024, 0, 0, max_tiles(1024), 1) is not None
    assert keys.of(1024, 0, 0, max_tiles(1024) + 1, 1) is None
    assert keys.of(1024, 1024, 9, 0, keys.max_samples) is not None
    assert keys.of(1024, 1024, 9, 0, keys.max_samples + 1) is None
    assert keys.of(1024, 257, 9, 1, 1) is None


def test_every_number_of_long_chunks_up_to_a_few_finds_its_tiles_captured() -> None:
    for num_tokens in (64, 500, 1024, 2048):
        for num_chunks in range(1, 9):
            each = num_tokens // num_chunks
            assert num_chunks * -(-each // 64) <= max_tiles(num_tokens)


def test_contexts_up_to_a_power_of_two_have_one_key() -> None:
    keys = make_keys(600, 100_000)
    assert decodes(keys, 1, 513) == decodes(keys, 1, 1024) != decodes(keys, 1, 1025)


def test_rungs_rise_and_end_with_the_first_that_holds_all_tokens() -> None:
    for count in range(1, 2049, 7):
        rungs = ladder(make_limits(1, 100, count))
        assert list(rungs) == sorted(set(rungs)) and [rung >= count for rung in rungs].index(True) == len(rungs) - 1


def test_the_largest_step_is_captured_too() -> None:
    assert ladder(make_limits(1, 100, 5001))[-1] == 5008
    assert ladder(make_limits(3000, 100, 3000))[-1] == 3000


@pytest.mark.parametrize("max_running", [6, 64, 256, 600, 2048])
@pytest.mark.parametrize("has_groups", [False, True])
def test_every_step_has_the_tiling_of_one_whose_kernels_were_compiled(has_groups: bool, max_running: int) -> None:
    """One that no start has compiled would be compiled while the step waits."""
    keys = GraphKeys(make_limits(max_running, 20_000), has_groups, exact=False)
    compiled = {(key.kernel_tiling, key.num_tokens > FEW) for key in (*keys.likely, *keys.unlikely)}
    for num_short in (0, 1, 2, 15, 16, 17, 100, 500, 600, 3000):
        for context in (1, 20, 300, 1500, 5000, 20_000):
            for num_more in (0, 20, 1000) if num_short <= max_running else (0,):  # tokens of tiles, beside decodes
                num_tokens, has_tiles = max(1, num_short) + num_more, num_more > 0
                captured = keys.of(num_tokens, num_short, context, int(has_tiles), min(num_tokens, 2))
                tiling = keys.tiling_of(num_tokens, num_short, context, has_tiles)
                for each in (captured, GraphKey(num_tokens, num_short, tiling, 0, 1)):
                    if each is not None:
                        found = each.kernel_tiling, each.num_tokens > FEW
                        assert found in compiled, (num_short, context, num_more, each)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("has_groups", [False, True])
def test_what_is_captured_ahead_finds_room_in_the_memory_of_the_largest(has_groups: bool, exact: bool) -> None:
    for max_running, max_model_len, max_step_tokens in ((6, 16384, 1024), (128, 16384, 2048), (1024, 131072, 4096)):
        keys = GraphKeys(make_limits(max_running, max_model_len, max_step_tokens), has_groups, exact)
        assert max(key.num_parts for key in keys.likely) <= max(keys.largest.num_parts, 4096)
        assert max(key.num_samples for key in keys.likely) <= keys.max_samples
