"""`auto` takes the quicker way to preempt, on either side of the line where swapping begins to pay."""

from dataclasses import replace

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.core.memory.preemption import Preemption
from chairlift.lab.sim.profile import Profile, load_profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import load_items
from chairlift.telemetry.report import Report

SHORT = "lengths:prompt=64-256,output=400-800,count=40"
LONG = "lengths:prompt=1000-2000,output=300-600,count=60"
TIMES = ((1, 4.0), (64, 4.0), (128, 6.0), (1024, 40.0))


def profile(swap_factor: float) -> Profile:
    found = load_profile("h200-llama2-7b")
    return replace(found, cost=replace(found.cost, swap_token_s=swap_factor * found.cost.swap_token_s))


def simulated(profile: Profile, preemption: str, workload: str, num_blocks: int) -> Report:
    settings = Settings(preemption=preemption, num_blocks=num_blocks, max_running=64)
    return run(settings, profile, load_items(workload), parse_arrivals("none"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("swap_factor", "workload", "num_blocks", "better"),
    [
        # A full step takes longer for a token than moving it, a step beside decodes does not.
        (1.0, SHORT, 400, "recompute"),
        (0.1, SHORT, 400, "swap"),
        (2.0, SHORT, 400, "recompute"),
        # Dropped blocks of long victims are mostly there when these return.
        (1.0, LONG, 1000, "recompute"),
        (0.1, LONG, 1000, "swap"),
    ],
)
def test_auto_takes_the_quicker_way(swap_factor: float, workload: str, num_blocks: int, better: str) -> None:
    times = {
        mode: simulated(profile(swap_factor), mode, workload, num_blocks) for mode in ("recompute", "swap", "auto")
    }
    assert times["swap"].swaps > 5, "the world was too easy to show anything"
    assert min(("recompute", "swap"), key=lambda mode: times[mode].total_s) == better
    assert times["auto"].total_s <= 1.002 * times[better].total_s
    share = times["auto"].swaps / times["auto"].preemptions
    assert share > 0.8 if better == "swap" else share < 0.2


@pytest.mark.parametrize(("num_beside", "is_swap"), [(0, False), (64, True), (600, True)])
def test_tokens_computed_again_cost_what_they_add_to_a_step(num_beside: int, is_swap: bool) -> None:
    # 64 tokens alone come with the reading of the weights; beside 64 others they take 2 s, as 4 blocks do at 0.25.
    auto = Preemption(mode="auto", block_copy_s=0.249, step_times=TIMES)
    assert auto.is_swap(4, 64, num_beside) is is_swap
    assert not replace(auto, block_copy_s=0.4).is_swap(4, 64, num_beside)


def test_auto_without_times_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="preemption auto compares times and has none"):
        Preemption(mode="auto", num_host_blocks=4)
