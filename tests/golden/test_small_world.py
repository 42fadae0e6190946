"""Golden traces: what the scheduler decides in a few small worlds, event by event.

A change that alters scheduling shows here as a diff of the trace. When it is meant, write the files anew and read the
diff before committing it:

    REWRITE_GOLDEN=1 .venv/bin/pytest tests/golden
"""

import difflib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from chairlift.config.options.rules import make_policy, make_prefill
from chairlift.config.scheduler import Rules
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.lab.sim.replay import replay
from chairlift.telemetry.trace import Trace
from fakes.drafts import RandomDrafter
from fakes.requests import make_request, make_samples, make_search
from fakes.traces import record
from fakes.worlds.world import Arrivals, World

HERE = Path(__file__).parent
SWAP = Preemption(mode="swap", num_host_blocks=8)
RULES = {
    "fcfs": Rules(),
    "fcfs-drafts": Rules(),
    "longest-first-swap": Rules(policy="longest-first", preemption=SWAP),
    "shortest-first-delay": Rules(policy="shortest-first", prefill="delay:factor=1"),
}


def world(name: str) -> World:
    """Five prompts of which two begin alike, one with two samples, one a search; memory runs out; one is aborted."""
    rules = RULES[name]
    limits = Limits(vocab_size=50, max_model_len=24, block_size=4, num_blocks=9, max_running=4, max_step_tokens=10)
    drafter = None
    if name.endswith("drafts"):
        limits, drafter = replace(limits, max_drafts=3), RandomDrafter(0, limits.vocab_size)
    arrivals: Arrivals = {
        0: [(make_request(1, range(9), 12, user="ann"),), (make_request(2, range(20, 27), 14, user="bob"),)],
        1: [make_samples(3, range(8), 2, 5, user="ann")],
        2: [make_search(5, range(30, 36), 2, 4), (make_request(7, range(9), 3, priority=1),)],
    }
    return World(
        limits, arrivals=arrivals, aborts={9: [RequestId(2)]}, policy=make_policy(rules.policy),
        prefill=make_prefill(rules.prefill), preemption=rules.preemption, drafter=drafter,
    )  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_small_world_is_scheduled_as_ever(tmp_path: Path, name: str) -> None:
    golden, path = HERE / f"{name}.jsonl", tmp_path / "trace.jsonl"
    record(world(name), path, RULES[name])
    if "REWRITE_GOLDEN" in os.environ:
        golden.write_bytes(path.read_bytes())
    # The header names the release, which may change.
    was, now = (file.read_text().splitlines()[1:] for file in (golden, path))
    assert was == now, "\n".join(difflib.unified_diff(was, now, "as ever", "now", lineterm=""))


@pytest.mark.parametrize("name", RULES)
def test_golden_traces_can_be_replayed(name: str) -> None:
    assert replay(Trace(HERE / f"{name}.jsonl")).difference is None


def test_golden_traces_show_what_matters() -> None:
    text = "".join((HERE / f"{name}.jsonl").read_text() for name in RULES)
    for sign in (
        '"kind":"forked"',
        '"is_swapped":true',
        '"is_swapped":false',
        '"num_cached":8',
        '"beams"',
        '"abort"',
        '"more"',
    ):
        assert sign in text
