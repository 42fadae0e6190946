import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chairlift.core.events import Preempted
from chairlift.core.limits import Limits
from chairlift.telemetry.chrome import entries, render
from fakes.drafts import RandomDrafter
from fakes.requests import make_request
from fakes.traces import record
from fakes.worlds.draws import full_world, random_world
from fakes.worlds.world import World

LIMITS = Limits(vocab_size=50, max_model_len=24, block_size=4, num_blocks=7, max_running=3, max_step_tokens=8)
STEPS, RUNNING, OFF, COUNTERS = 1, 2, 3, 4


def crowded() -> World:
    groups = [(make_request(i, range(10 * i, 10 * i + 9), 12),) for i in range(1, 5)]
    return World(LIMITS, arrivals={0: groups})


def slices(found: list[dict[str, Any]], process: int) -> list[dict[str, Any]]:
    return [entry for entry in found if entry["ph"] == "X" and entry["pid"] == process]


def test_each_slot_shows_its_requests_with_prompt_chunks_and_decoding_inside(tmp_path: Path) -> None:
    world = World(LIMITS, arrivals={0: [(make_request(1, range(9), 4),)]})
    found = slices(list(entries(record(world, tmp_path / "t"))), RUNNING)
    assert [entry["name"] for entry in found] == ["prompt 0-8", "prompt 8-9", "decode 3", "request 1"]
    whole = found[-1]
    for part in found[:-1]:
        assert part["tid"] == whole["tid"]
        assert whole["ts"] <= part["ts"] and part["ts"] + part["dur"] <= whole["ts"] + whole["dur"]


def test_a_preempted_request_is_shown_until_it_comes_back(tmp_path: Path) -> None:
    world = crowded()
    found = list(entries(record(world, tmp_path / "t")))
    assert len(slices(found, OFF)) == sum(isinstance(event, Preempted) for event in world.events) > 0
    assert any(entry["name"].startswith("again") for entry in slices(found, RUNNING))


def test_tokens_that_drafts_bring_are_counted(tmp_path: Path) -> None:
    limits = replace(LIMITS, max_drafts=3)
    world = World(limits, arrivals={0: [(make_request(1, range(8), 12),)]}, drafter=RandomDrafter(1, 50))
    found = list(entries(record(world, tmp_path / "t")))
    assert [entry["name"] for entry in slices(found, RUNNING)] == ["prompt 0-8", "decode 11", "request 1"]
    for name, count in (("drafts", world.runner.num_drafts), ("accepted", world.runner.num_accepted)):
        assert sum(entry["args"][name] for entry in slices(found, STEPS)) == count > 0


@pytest.mark.sampled(15)
@pytest.mark.parametrize("make", [random_world, full_world, partial(random_world, drafts=True)])
@pytest.mark.parametrize("seed", range(20))
def test_no_requests_share_a_track_and_there_are_no_more_tracks_than_slots(
    tmp_path: Path, seed: int, make: Callable[[int], World]
) -> None:
    world = make(seed)
    found = list(entries(record(world, tmp_path / "t")))
    tracks = defaultdict(list)
    for entry in slices(found, RUNNING):
        if entry["name"].startswith("request"):
            tracks[entry["tid"]].append((entry["ts"], entry["ts"] + entry["dur"]))
    if world.runner.depth == 1:  # else a request may end only after its slot was given away
        assert len(tracks) <= world.limits.max_running
    for stays in tracks.values():
        stays.sort()
        assert all(left[1] <= right[0] for left, right in itertools.pairwise(stays))


def test_every_step_is_a_slice_and_every_plan_counts_the_queue_and_the_blocks(tmp_path: Path) -> None:
    world = crowded()
    found = list(entries(record(world, tmp_path / "t")))
    assert [entry["name"] for entry in slices(found, STEPS)] == [f"step {plan.step}" for plan in world.runner.plans]
    blocks = [e["args"]["blocks in use"] for e in found if e["ph"] == "C" and e["name"] == "blocks in use"]
    assert max(blocks) == LIMITS.num_blocks
    assert max(e["args"]["waiting"] for e in found if e["ph"] == "C" and e["name"] == "waiting") == 3


def test_the_file_is_one_json_object(tmp_path: Path) -> None:
    trace = record(crowded(), tmp_path / "t")
    document = json.loads(b"".join(render(trace)))
    assert document["traceEvents"] == list(entries(trace))
    assert document["otherData"] == {"model": "ledger"}
