from dataclasses import replace

import pytest

from chairlift.core.errors import ContextFull, InvalidConfig, InvalidRequest
from chairlift.core.limits import Limits, num_offered, output_room
from chairlift.core.memory.pages import Group
from chairlift.core.params import SamplingParams

LIMITS = Limits(vocab_size=100, max_model_len=32, block_size=4, num_blocks=6, max_running=2, max_step_tokens=8)


def test_output_fills_the_context_when_no_limit_is_given() -> None:
    assert (
        output_room([1] * 10, SamplingParams(max_tokens=None), LIMITS) == 15
    )  # 24 places, and the last token needs none


def test_a_prompt_longer_than_the_pool_is_refused_with_the_limit() -> None:
    with pytest.raises(
        ContextFull, match="context length is 25 .* 25 tokens leave no room.*whole KV cache of 24 tokens .*--kv-memory"
    ) as refused:
        output_room([1] * 25, SamplingParams(), LIMITS)
    assert (refused.value.context_len, refused.value.num_prompt) == (25, 25)


def test_an_output_too_long_for_the_cache_is_refused_with_the_longest_that_fits() -> None:
    with pytest.raises(ContextFull, match="max_tokens: .*; at most 15 fit after .* 10 tokens .* of 24 tokens .*got 16"):
        output_room([1] * 10, SamplingParams(max_tokens=16), LIMITS)
    assert output_room([1] * 10, SamplingParams(max_tokens=15), LIMITS) == 15


def test_an_output_too_long_for_the_context_is_refused_with_the_longest_that_fits() -> None:
    wide = replace(LIMITS, num_blocks=100)
    with pytest.raises(ContextFull, match="context length is 32 tokens; at most 22 fit .* of 10 tokens, got 23"):
        output_room([1] * 10, SamplingParams(max_tokens=23), wide)
    assert output_room([1] * 10, SamplingParams(max_tokens=22), wide) == 22


@pytest.mark.parametrize(
    ("prompt", "params", "field"),
    [
        ([], SamplingParams(), "prompt"),
        ([100], SamplingParams(), "prompt"),
        ([-1], SamplingParams(), "prompt"),
        ([1], SamplingParams(n=3), "n"),
        ([1], SamplingParams(best_of=3), "best_of"),
        ([1], SamplingParams(beam_width=3), "beam_width"),
        ([1], SamplingParams(beam_width=2, logprobs=0), "logprobs"),
        ([1], SamplingParams(logit_bias={100: 1.0}), "logit_bias"),
        ([1], SamplingParams(stop_token_ids=(100,)), "stop_token_ids"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused_by_field(
    prompt: list[int], params: SamplingParams, field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        output_room(prompt, params, LIMITS)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0), ("temperature", -0.1), ("temperature", float("nan")), ("top_p", 0.0), ("top_p", 1.5),
        ("top_k", -2), ("min_p", 2.0), ("repetition_penalty", 0.0), ("presence_penalty", 3.0),
        ("frequency_penalty", float("inf")), ("n", 0), ("n", 1000), ("logprobs", -1), ("logprobs", 101),
        ("min_tokens", -1), ("stop", ("",)), ("logit_bias", {1: float("nan")}), ("seed", 2**64),
        ("seed", 10**400), ("prompt_logprobs", 21),
    ],
)  # fmt: skip
def test_sampling_params_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=field):
        SamplingParams(**{field: value})  # type: ignore[arg-type]


def test_a_step_must_have_room_for_every_running_request() -> None:
    with pytest.raises(InvalidConfig, match="max_step_tokens"):
        Limits(vocab_size=9, max_model_len=9, block_size=1, num_blocks=9, max_running=4, max_step_tokens=3)


def test_a_search_that_can_never_be_carried_out_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="beam_width: must be at most 25 with 3 stop tokens, got 26"):
        num_offered(SamplingParams(beam_width=26, max_tokens=1), 3, 1, LIMITS)
    with pytest.raises(InvalidRequest, match="beam_width: 2 continuations of up to 32 tokens .* of 24 tokens"):
        num_offered(SamplingParams(beam_width=2, max_tokens=None), 1, 10, LIMITS)
    assert num_offered(SamplingParams(beam_width=2, max_tokens=2), 1, 10, LIMITS) == 4


def test_requests_of_full_length_are_counted_with_and_without_windows() -> None:
    assert replace(LIMITS, num_blocks=20).num_full_length == 2.5
    # Eight pages of the layers that see all, and two of those with a window: the last block and the one before it.
    assert replace(LIMITS, num_blocks=30, groups=(Group("window", 1, 4),)).num_full_length == 3.0


@pytest.mark.parametrize("reach", [0, 6])
def test_checkpoints_that_are_not_at_the_ends_of_blocks_are_refused(reach: int) -> None:
    limits = replace(LIMITS, groups=(Group("fixed", 1, reach, 1),))
    with pytest.raises(InvalidConfig, match=f"checkpoints every {reach} tokens: must be a multiple of the block size"):
        _ = limits.pages


def test_a_pool_that_holds_no_state_holds_no_request() -> None:
    limits = replace(LIMITS, groups=(Group("fixed", 2, 8, 1),))
    assert (limits.max_pool_tokens, replace(limits, num_blocks=9).max_pool_tokens) == (0, 4)
    with pytest.raises(ContextFull, match="no room for output in the whole KV cache of 0 tokens .*--kv-memory"):
        output_room([1], SamplingParams(), limits)
