from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Group
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import LongestFirst
from chairlift.telemetry.breakdown import break_down, slowest
from chairlift.telemetry.explain import in_words
from chairlift.telemetry.lines import Add
from chairlift.telemetry.phases import DECODE, PREEMPTED, PROMPT, QUEUED, RECOMPUTED
from fakes.drafts import RandomDrafter
from fakes.requests import make_request, make_samples
from fakes.traces import record
from fakes.worlds.draws import full_world, random_world
from fakes.worlds.world import World

LIMITS = Limits(vocab_size=50, max_model_len=24, block_size=4, num_blocks=7, max_running=2, max_step_tokens=6)


def one(number: int, length: int, max_output: int = 4, **more: object) -> tuple:
    return (make_request(number, range(number, number + length), max_output, **more),)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("make", [random_world, full_world, partial(random_world, drafts=True)])
@pytest.mark.parametrize("seed", range(40))
def test_the_parts_of_every_request_add_up_to_its_latency(
    tmp_path: Path, seed: int, make: Callable[[int], World]
) -> None:
    trace = record(make(seed), tmp_path / "t")
    for line in trace:
        heard = line.requests[: line.n if line.beam_width else None] if isinstance(line, Add) else ()
        for request in heard:
            breakdown = break_down(trace, request)
            assert breakdown.finish
            assert sum(breakdown.parts.values()) == pytest.approx(breakdown.latency_s)
            assert f"request {request}" in in_words(breakdown)


def test_a_request_waits_while_the_running_set_is_full(tmp_path: Path) -> None:
    world = World(LIMITS, arrivals={0: [one(1, 4), one(2, 2), one(3, 4)], 1: [one(4, 2)]})
    trace = record(world, tmp_path / "t")
    breakdown = break_down(trace, RequestId(4))
    assert (breakdown.num_running, breakdown.num_ahead) == (2, 1)
    assert breakdown.passed == [3]
    assert set(breakdown.reasons) == {"until the next step", "the running set was full"}
    text = in_words(breakdown)
    assert "When it came, 2 requests ran and 1 waited before it." in text
    assert "While it waited, request 3 began to run." in text
    assert "the running set was full" in text


def test_those_that_came_later_and_went_first_are_named(tmp_path: Path) -> None:
    world = World(
        LIMITS, policy=LongestFirst(), arrivals={0: [one(1, 4, 9), one(2, 2, 9), one(3, 2, 2)], 1: [one(4, 2, 9)]}
    )
    text = in_words(break_down(record(world, tmp_path / "t"), RequestId(3)))
    assert "While it waited, requests 1, 2, 4 began to run; request 4 of them had come later." in text


def test_a_prompt_in_chunks_is_told_chunk_by_chunk(tmp_path: Path) -> None:
    breakdown = break_down(record(World(LIMITS, arrivals={0: [one(1, 15)]}), tmp_path / "t"), RequestId(1))
    assert [step.count for step in breakdown.steps[PROMPT]] == [6, 6, 3]
    assert "Its prompt was computed in 3 chunks: 6 + 6 + 3 tokens." in in_words(breakdown)


def test_tokens_that_some_layers_alone_had_are_told(tmp_path: Path) -> None:
    limits = replace(LIMITS, num_blocks=30, groups=(Group("fixed", 1, 1 << 20, 1),))
    later = {20 * i: [(make_request(1 + i, [*range(1, 14), 39 + i, 40 + i], 2),)] for i in (1, 2)}
    trace = record(World(limits, arrivals={0: [one(1, 20)], **later}), tmp_path / "t")
    text = in_words(break_down(trace, RequestId(2)))
    assert "0 of its 15 prompt tokens came from a checkpoint." in text
    assert "12 more were in the cache for some layers alone: no state or window was kept to go on from." in text
    text = in_words(break_down(trace, RequestId(3)))
    assert "12 of its 15 prompt tokens came from a checkpoint." in text
    assert "for some layers alone" not in text


def test_tokens_that_were_found_are_told(tmp_path: Path) -> None:
    arrivals = {0: [one(1, 20)], 20: [(make_request(2, range(1, 15), 2),)]}
    world = World(replace(LIMITS, num_blocks=30), arrivals=arrivals)
    text = in_words(break_down(record(world, tmp_path / "t"), RequestId(2)))
    assert "12 of its 14 prompt tokens came from the cache." in text


def test_a_request_that_waits_for_memory_is_told_so(tmp_path: Path) -> None:
    world = World(LIMITS, arrivals={0: [one(1, 16)], 4: [one(2, 12)]})
    breakdown = break_down(record(world, tmp_path / "t"), RequestId(2))
    assert breakdown.reasons["no memory to spare"] > 0


@pytest.mark.parametrize(
    ("mode", "words"), [("recompute", "to be computed again"), ("swap", "moved out to host memory")]
)
def test_a_preemption_is_told_with_its_length_and_its_cost(tmp_path: Path, mode: str, words: str) -> None:
    preemption = Preemption(mode=mode, num_host_blocks=8)
    world = World(LIMITS, preemption=preemption, arrivals={0: [one(1, 9, 12), one(2, 9, 12)]})
    breakdown = break_down(record(world, tmp_path / "t"), RequestId(2))
    assert len(breakdown.preempted) == 1
    span = breakdown.preempted[0]
    assert breakdown.parts[PREEMPTED] == span.end - span.start > 0
    assert (RECOMPUTED in breakdown.steps) == (mode == "recompute")
    assert words in in_words(breakdown)


def test_decoding_beside_prompts_of_others_is_told(tmp_path: Path) -> None:
    world = World(LIMITS, arrivals={0: [one(1, 4, 8)], 3: [one(2, 8)]})
    breakdown = break_down(record(world, tmp_path / "t"), RequestId(1))
    assert [step.num_prompt_tokens > 0 for step in breakdown.steps[DECODE]].count(True) == 2
    assert "2 of its decode steps also computed prompts of others (4 tokens a step)" in in_words(breakdown)


def test_drafts_are_told(tmp_path: Path) -> None:
    limits = replace(LIMITS, max_drafts=2)
    world = World(limits, arrivals={0: [one(1, 4, 12)]}, drafter=RandomDrafter(1, 50))
    breakdown = break_down(record(world, tmp_path / "t"), RequestId(1))
    assert breakdown.num_tokens == 12
    assert len(breakdown.steps[DECODE]) < 11
    num_drafts = world.runner.num_drafts
    assert f"{num_drafts} tokens were drafted for it" in in_words(breakdown)


def test_a_further_sample_waits_for_its_sibling(tmp_path: Path) -> None:
    world = World(LIMITS, arrivals={0: [make_samples(1, range(8), 2, 3)]})
    breakdown = break_down(record(world, tmp_path / "t"), RequestId(2))
    assert breakdown.source == 1
    assert "It waited for request 1, a sample of the same prompt" in in_words(breakdown)


def test_an_abort_ends_the_story(tmp_path: Path) -> None:
    world = World(LIMITS, arrivals={0: [one(1, 8, 9), one(2, 4, 9), one(3, 4)]}, aborts={4: [RequestId(3)]})
    breakdown = break_down(record(world, tmp_path / "t"), RequestId(3))
    assert breakdown.finish == "abort"
    assert breakdown.parts == {QUEUED: breakdown.latency_s}


def test_a_request_that_goes_on_elsewhere_ends_the_story_too(tmp_path: Path) -> None:
    world = World(LIMITS, arrivals={0: [one(1, 8, 9), one(2, 4, 9)]}, aborts={4: [RequestId(2)]}, has_moved=True)
    assert break_down(record(world, tmp_path / "t"), RequestId(2)).finish == "moved"


def test_an_unknown_request_is_refused_with_those_there_are(tmp_path: Path) -> None:
    trace = record(World(LIMITS, arrivals={0: [one(1, 4), one(2, 4)]}), tmp_path / "t")
    with pytest.raises(InvalidConfig, match="request 7 is not in this trace; it has 1 to 2"):
        break_down(trace, RequestId(7))


def test_the_slowest_request_is_found(tmp_path: Path) -> None:
    trace = record(World(LIMITS, arrivals={0: [one(1, 4, 2), one(2, 4, 9), one(3, 4, 2)]}), tmp_path / "t")
    assert slowest(trace) == max((1, 2, 3), key=lambda number: break_down(trace, RequestId(number)).latency_s)
