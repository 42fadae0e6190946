import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.runner.memory.budget import Budget, check_weights
from fakes.gpu import GIB, MIB

LIMITS = Limits(vocab_size=100, max_model_len=4096, block_size=16, num_blocks=256, max_running=64, max_step_tokens=2048)
BUDGET = Budget(total=24 * GIB, others=GIB, weights=13 * GIB, activations=2 * GIB, graphs=GIB)


def test_the_cache_gets_what_the_share_leaves() -> None:
    assert BUDGET.num_blocks_within(0.75, MIB, LIMITS, 0) == 1024
    assert BUDGET.num_blocks_within(0.75, MIB, LIMITS, 5) == 1014
    assert BUDGET.num_blocks_within(1.0, MIB, LIMITS, 0) == 7 * 1024


def test_everything_adds_up_to_the_total_in_one_line() -> None:
    budget = Budget(24 * GIB, GIB, 13 * GIB, 2 * GIB, GIB, kv=4 * GIB)
    assert budget.free == 3 * GIB
    assert budget.in_words() == (
        "GPU memory of 24.0 GiB: weights 13.0, activations 2.0, graphs 1.0, others 1.0, KV cache 4.0, free 3.0"
    )


@pytest.mark.parametrize("share", [0.5, 0.71])
def test_too_little_for_a_useful_cache_is_refused_with_ways_out(share: float) -> None:
    with pytest.raises(InvalidConfig) as caught:
        BUDGET.num_blocks_within(share, 16 * MIB, LIMITS, 0)
    message = str(caught.value)
    assert f"memory {share} of the GPU's 24.0 GiB leaves" in message
    assert "raise --memory or lower --max-step-tokens, --max-running or --max-model-len" in message
    assert "\n" not in message


def test_weights_that_do_not_fit_are_refused_with_what_they_need_and_what_there_is() -> None:
    check_weights(20 * GIB, 24 * GIB, GIB, 0.9, "less")
    with pytest.raises(InvalidConfig) as caught:
        check_weights(21 * GIB, 24 * GIB, GIB, 0.9, "--quantize fp8")
    assert str(caught.value) == (
        "the weights need 21.0 GiB and memory 0.9 of the GPU's 24.0 GiB leaves 20.6 (1.0 are in use); use "
        "--quantize fp8"
    )
