"""A small thing to tune: a synthetic device, a few dozen requests, and knobs that matter."""

import random

from chairlift.config.settings import Settings
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.profile import Profile
from chairlift.lab.tune.evaluate import Work
from chairlift.lab.tune.knobs import Knob
from chairlift.lab.tune.targets import Targets
from chairlift.lab.workload.item import Item

PROFILE = Profile(
    name="synthetic",
    model="small",
    device="paper",
    dtype="float32",
    vocab_size=100,
    max_model_len=256,
    max_running=16,
    max_step_tokens=64,
    kv_token_bytes=1,
    kv_memory=4096,
    # A step is cheap up to eight rows, and each row beyond them dear.
    cost=CostModel(linear=((1, 0.010), (8, 0.011), (16, 0.030), (64, 0.150)), kv_token_s=1e-7),
)
KNOBS = (
    Knob("policy", ("fcfs", "longest-first", "shortest-first"), "fcfs"),
    Knob("max_running", (2, 4, 8, 16), 16, is_ordered=True),
    Knob("max_step_tokens", (16, 32, 64), 64, is_ordered=True),
    Knob("admission", ("prompt", "peak"), "prompt"),
)


def items(count: int = 40, gap_s: float = 0.0) -> tuple[Item, ...]:
    rng = random.Random(1)
    return tuple(
        Item(prompt_tokens=rng.randint(2, 12), output_tokens=rng.randint(1, 30), arrival_s=i * gap_s)
        for i in range(count)
    )


def work(count: int = 40, arrivals: str = "none", slo: str | None = None, gap_s: float = 0.0) -> Work:
    targets = None if slo is None else Targets.parse(slo)
    return Work(Settings(), {0: PROFILE}, items(count, gap_s), arrivals, targets=targets)
