import pytest

from chairlift.core.limits import Limits
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.step.graph_key import GraphKey, GraphKeys, ladder


def make_keys(max_running: int, max_model_len: int) -> GraphKeys:
    limits = Limits(
        vocab_size=9, max_model_len=max_model_len, block_size=4, num_blocks=9, max_running=max_running,
        max_step_tokens=max_running,
    )  # fmt: skip
    return GraphKeys(limits, has_groups=True, exact=False)


@pytest.mark.parametrize("longest", [3, 48, 64, 65, 300, 512, 5000])
def test_decodes_in_short_contexts_are_prepared_however_long_contexts_may_be(longest: int) -> None:
    wanted = {(rung, choose_tiling(rung, 1 << (n - 1).bit_length(), True), rung)
              for rung in (1, 2, 4, 8) for n in range(1, min(longest, 4096) + 1)}  # fmt: skip
    assert set(make_keys(6, longest).likely) == wanted


def test_any_number_of_decodes_is_prepared() -> None:
    for max_running in (1, 6, 511, 600, 1024, 3000):
        keys = make_keys(max_running, 100)
        rungs = {keys.rung(count) for count in range(1, max_running + 1)} - {None}
        assert {key.num_tokens for key in keys.likely} == rungs


def test_a_step_is_padded_to_the_next_rung_and_not_beyond_the_last() -> None:
    keys = make_keys(6, 100)
    assert [keys.rung(count) for count in (1, 3, 17, 512, 513)] == [1, 4, 24, 512, None]
    assert keys.max_tokens == 512


def test_samples_are_padded_to_half_of_the_tokens_or_all() -> None:
    keys, tiling = make_keys(6, 100), choose_tiling(8, 64, True)
    assert [keys.of(8, num_samples, 40) for num_samples in (0, 4, 5, 8)] == [
        GraphKey(8, tiling, 4), GraphKey(8, tiling, 4), GraphKey(8, tiling, 8), GraphKey(8, tiling, 8)
    ]  # fmt: skip
    assert keys.of(1, 0, 1).num_samples == keys.of(1, 1, 1).num_samples == 1


def test_contexts_up_to_a_power_of_two_have_one_key() -> None:
    keys = make_keys(600, 100_000)
    assert keys.of(1, 1, 513) == keys.of(1, 1, 1024) != keys.of(1, 1, 1025)


def test_steps_beyond_512_are_captured_only_where_so_many_decode() -> None:
    assert ladder(1)[-1] == ladder(512)[-1] == 512
    assert ladder(513)[-2:] == (512, 576)
    assert ladder(1000)[-1] == ladder(1024)[-1] == ladder(5000)[-1] == 1024


def test_rungs_rise_and_hold_every_number_of_decodes() -> None:
    for count in range(1, 1025):
        rungs = ladder(count)
        assert list(rungs) == sorted(set(rungs)) and rungs[-1] >= count
