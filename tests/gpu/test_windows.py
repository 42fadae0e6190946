"""Groups of layers with a window on a GPU: the logits of a full cache, bit for bit, though all that lies behind windows
is NaN; captured steps, prompts by tiles, preemption with swapping, forks, prefix hits."""

import pytest
import torch

from chairlift.core.events import Forked, Preempted
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from fakes.requests import make_samples
from fakes.worlds.grouped import grouped_limits, on_cuda, windowed
from fakes.worlds.world import World

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

CUDA = torch.device("cuda")
SHAPE = {"num_heads": 8, "num_kv_heads": 4, "hidden_size": 512, "intermediate_size": 512, "vocab_size": 1000}


@pytest.mark.parametrize(
    ("kinds", "head_dim", "full", "num_blocks"),
    [
        ("wwFwwwF", 64, {}, 200),
        ("wwFwwwF", 128, {}, 200),
        ("wwFwwwF", 256, {}, 200),
        ("wwFwwwF", 64, {"num_kv_heads": 2}, 320),
        ("wwFswwwwsF", 64, {"head_dim": 128}, 160),
        ("wwFswwwwsF", 256, {"head_dim": 512}, 160),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("has_index", [False, True])
def test_the_logits_are_those_of_a_full_cache(
    has_index: bool, exact: bool, kinds: str, head_dim: int, full: dict[str, int], num_blocks: int
) -> None:
    """Prompts of up to 900 tokens in chunks of 256, so that tiles of queries begin far behind the first key."""
    config = windowed(kinds, window=100, full=full, head_dim=head_dim, max_model_len=1024, **SHAPE)
    limits = Limits(
        vocab_size=1000, max_model_len=1024, block_size=16, num_blocks=num_blocks, max_running=8, max_step_tokens=256
    )  # fmt: skip
    limits = grouped_limits(config, limits)
    preemption = Preemption(mode="swap", num_host_blocks=400)
    shared = [7 * i % 1000 for i in range(900)]
    arrivals = {i: [make_samples(10 * i, shared[: 900 - 83 * i], 1 + i % 2, 40, temperature=0.0)] for i in range(10)}
    runner = on_cuda(config, torch.bfloat16, CUDA, exact)
    world = World(limits, runner, arrivals=arrivals, preemption=preemption, has_prefix_index=has_index).drive()
    happened = world.happened
    assert min(happened[Preempted], happened[Forked], happened["swap"]) > 0
    assert happened["hit"] > 0 or not has_index
    assert happened["compared"] > 400
