"""Groups of layers with a window by the CUDA runner, in Triton's interpreter: the logits of a full cache, bit for bit,
though all that lies behind windows is NaN."""

import os

import pytest
import torch

from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.models.spec import ModelConfig
from chairlift.runner.cuda.step import layout
from fakes.requests import make_samples
from fakes.worlds.grouped import grouped_limits, on_cuda, windowed
from fakes.worlds.world import World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

CPU = torch.device("cpu")
SHAPE = {"window": 5, "head_dim": 16, "hidden_size": 16, "intermediate_size": 16, "vocab_size": 17}
CONFIG = windowed("wFw", **SHAPE)
# Layers that see all tokens keep half as much of each, and twice as much; one with a window has another's keys.
NARROW, WIDE = windowed("wFw", full={"num_kv_heads": 1}, **SHAPE), windowed("wFsw", full={"head_dim": 32}, **SHAPE)


@pytest.mark.nightly
@pytest.mark.parametrize("config", [CONFIG, NARROW, WIDE], ids=["same", "narrow", "wide"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_logits_are_those_of_a_full_cache(
    monkeypatch: pytest.MonkeyPatch, exact: bool, config: ModelConfig
) -> None:
    monkeypatch.setattr(layout, "MAX_ROW_PAIRS", 20)  # so that there are tiles of queries, too
    limits = Limits(vocab_size=17, max_model_len=32, block_size=2, num_blocks=60, max_running=3, max_step_tokens=9)
    limits = grouped_limits(config, limits)
    arrivals = {0: [make_samples(1, [1, 2, 3] * 4, 2, 3, temperature=0.0)], 2: [make_samples(3, [4, 5], 1, 8)]}
    runner = on_cuda(config, torch.float32, CPU, exact)
    world = World(limits, runner, arrivals=arrivals, has_prefix_index=False).drive()  # released pages are blank at once
    assert world.counts["compared"] >= 10


@pytest.mark.nightly
def test_what_is_swapped_out_comes_back() -> None:
    limits = Limits(vocab_size=17, max_model_len=32, block_size=2, num_blocks=40, max_running=4, max_step_tokens=12)
    limits = grouped_limits(CONFIG, limits)
    preemption = Preemption(mode="swap", num_host_blocks=80)
    arrivals = {0: [make_samples(1 + i, [1, 2, 3 + i] * 2, 1, 20, temperature=0.0) for i in range(4)]}
    runner = on_cuda(CONFIG, torch.float32, CPU, exact=False)
    world = World(limits, runner, arrivals=arrivals, preemption=preemption, has_prefix_index=False).drive()
    assert world.happened["swap"] > 0
