import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from chairlift.config.scheduler import Rules, make_scheduler
from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Admitted, Finished, Preempted, Shrunk
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Drafter
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.replay import replay
from chairlift.live.clock import WallClock
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.telemetry.lines import Plan
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.trace import Trace
from fakes.clocks import CountingClock
from fakes.crowds import crowd, with_searches
from fakes.drafts import RandomDrafter
from fakes.engines import BeginsFirst
from fakes.ledger import expected
from fakes.requests import make_request
from fakes.traces import record
from fakes.worlds.draws import full_world, random_world
from fakes.worlds.faults import failing
from fakes.worlds.models import CONFIG, world_limits
from fakes.worlds.world import World

SMALL = Limits(vocab_size=50, max_model_len=24, block_size=4, num_blocks=7, max_running=3, max_step_tokens=8)


class DeepRunner(TorchRunner):
    depth = 2  # type: ignore[assignment]


def record_live(path: Path, rules: Rules, seed: int, depth: int) -> tuple[Trace, Counter[str]]:
    """A real model on the wall clock, with arrivals and aborts at random moments."""
    rng = random.Random(seed)
    limits = world_limits(num_blocks=24, block_size=4, max_running=6, max_step_tokens=24)
    device = torch.device("cpu")
    model = build_model(CONFIG, TorchOps(), DummyTensors(CONFIG), torch.float32, device, CONFIG.max_model_len)
    cache = KvCache(CONFIG, 24, 4, torch.float32, device, rules.preemption.num_host_blocks)
    scheduler = make_scheduler(limits, rules)
    kinds: Counter[str] = Counter()
    groups = [group for groups in with_searches(crowd(seed), seed).values() for group in groups]
    runner = (TorchRunner if depth == 1 else DeepRunner)(model, cache, device)
    with closing(Recorder(path, scheduler, rules, "tiny", "wall", depth)) as recorder:
        engine = Engine(scheduler, runner, WallClock(), recorder)
        while groups or engine.has_work:
            while groups and rng.random() < 0.4:
                engine.add(groups.pop())
            if scheduler.live and rng.random() < 0.08:
                engine.abort(rng.choice(list(scheduler.live)))
            for event in engine.step():
                kinds[type(event).__name__] += 1
                kinds["hit"] += isinstance(event, Admitted) and event.num_cached > 0
    return Trace(path), kinds


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "rules",
    [
        Rules(),
        pytest.param(Rules(policy="shortest-first", prefill="delay:factor=2"), marks=pytest.mark.slow),
        pytest.param(
            Rules(policy="mlfq", preemption=Preemption(mode="swap", num_host_blocks=24)), marks=pytest.mark.slow
        ),
        pytest.param(
            Rules(policy="longest-prefix", admission="peak", prefill="mixed:after_preempt=wait"), marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.parametrize("depth", [1, 2])
def test_a_live_run_on_a_model_is_planned_the_same_in_a_replay(tmp_path: Path, rules: Rules, depth: int) -> None:
    seen: Counter[str] = Counter()
    for seed in (1, 2):
        trace, kinds = record_live(tmp_path / "trace.jsonl", rules, seed, depth)
        seen += kinds
        replayed = replay(trace)
        assert replayed.difference is None
        assert replayed.num_steps == sum(isinstance(line, Plan) and line.step is not None for line in trace) > 0
    assert seen[Finished.__name__] and seen["hit"], "the runs were too tame to show anything"
    assert seen[Preempted.__name__] or rules.admission == "peak"


def made_as(draw: Callable[..., World]) -> Callable[[Limits, Rules, Drafter | None], Scheduler]:
    """The scheduler of such a world, with rules that a header cannot name."""
    return lambda _, __, drafter: draw(drafter=drafter).scheduler


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_worlds_are_planned_the_same_in_a_replay(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 10):
        trace = record(random_world(seed), tmp_path / "trace.jsonl")
        assert replay(trace, made_as(partial(random_world, seed))).difference is None, seed


def test_worlds_with_arrivals_between_two_plans_are_planned_the_same_in_a_replay(tmp_path: Path) -> None:
    num_begun = 0
    for seed in range(40):
        world = random_world(seed)
        if world.depth == 2:
            engine = world.engine = BeginsFirst(world.scheduler, world.runner, CountingClock())
            trace = record(world, tmp_path / f"{seed}.jsonl")
            assert replay(trace, made_as(partial(random_world, seed))).difference is None
            num_begun += engine.num_begun
    assert num_begun > 20


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_worlds_with_drafts_are_planned_the_same_in_a_replay(tmp_path: Path, first: int) -> None:
    """What was drafted comes from the trace, not from a drafter."""
    for seed in range(first, first + 10):
        trace = record(random_world(seed, drafts=True), tmp_path / "trace.jsonl")
        assert replay(trace, made_as(partial(random_world, seed, drafts=True))).difference is None, seed


def test_other_drafts_are_noticed(tmp_path: Path) -> None:
    world = World(replace(SMALL, max_drafts=3), drafter=RandomDrafter(1, 50))
    world.arrivals = {0: [(make_request(1, range(5), 10),)]}
    trace = record(world, tmp_path / "trace.jsonl")
    assert replay(trace).difference is None
    difference = replay(trace, lambda limits, *_: Scheduler(limits, Fcfs(), drafter=RandomDrafter(2, 50))).difference
    assert difference is not None
    assert "(decoding: 1+" in difference


def test_requests_that_went_on_from_another_engine_are_planned_the_same_in_a_replay(tmp_path: Path) -> None:
    world = World(SMALL, depth=2)
    requests = [make_request(i, range(i, i + 5), 10) for i in range(1, 7)]
    with closing(Recorder(tmp_path / "trace", world.scheduler, Rules(), "ledger", "virtual", 2)) as recorder:
        world.engine.observer = recorder
        for request in requests:
            world.engine.add((replace(request, output=tuple(expected(request, 50)[: request.id])),))
        while world.engine.has_work:
            world.events += world.engine.step()
    assert {r.id: world.outputs()[r.id] for r in requests} == {r.id: expected(r, 50)[r.id :] for r in requests}
    again = replay(Trace(tmp_path / "trace"))
    assert again.difference is None
    assert again.num_steps > 9


def small_trace(path: Path, rules: Rules | None = None) -> Trace:
    groups = [(make_request(i, range(10 * i, 10 * i + 9), 2 * i),) for i in range(1, 6)]
    return record(World(SMALL, arrivals={0: groups}), path, rules)


def test_another_policy_is_noticed_at_the_first_plan_it_changes(tmp_path: Path) -> None:
    replayed = replay(small_trace(tmp_path / "trace.jsonl", Rules(policy="longest-first")))
    assert replayed.difference is not None
    assert "the plan was step 1 (decoding: none; prompts: 0-8 of request 1)" in replayed.difference
    assert "now it is step 1 (decoding: none; prompts: 0-8 of request 5)" in replayed.difference


def edited(path: Path, kind: str, **changes: object) -> Trace:
    """The trace with the first line of a kind changed."""
    lines = path.read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == kind)
    lines[place] = json.dumps(json.loads(lines[place]) | changes)
    path.write_text("\n".join(lines) + "\n")
    return Trace(path)


def test_another_event_is_noticed(tmp_path: Path) -> None:
    small_trace(tmp_path / "trace.jsonl")
    replayed = replay(edited(tmp_path / "trace.jsonl", "admitted", num_cached=4))
    assert replayed.difference is not None
    assert "the event was Admitted(" in replayed.difference


def test_a_step_that_failed_is_replayed(tmp_path: Path) -> None:
    arrivals = {0: [(make_request(1, range(9), 4),)], 3: [(make_request(2, range(5), 4),)]}
    world = World(SMALL, faults=[failing(2)], arrivals=arrivals)
    with closing(Recorder(tmp_path / "t", world.scheduler, Rules(), "ledger", "virtual", 1)) as recorder:
        world.engine.observer = recorder
        for step in range(12):
            for samples in world.arrivals.get(step, ()):
                world.engine.add(samples)
            world.engine.step()
    trace = Trace(tmp_path / "t")
    assert '"kind":"fail"' in (tmp_path / "t").read_text()
    assert replay(trace).difference is None


@pytest.mark.nightly
def test_steps_that_did_not_fit_are_replayed(tmp_path: Path) -> None:
    num_shrunk = 0
    for seed in range(60):
        trace = record(full_world(seed), tmp_path / "trace.jsonl")
        num_shrunk += sum(isinstance(line, Shrunk) for line in trace)
        assert replay(trace, made_as(partial(full_world, seed))).difference is None
    assert num_shrunk > 60


def test_a_run_that_was_cut_off_is_replayed_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    whole = replay(small_trace(path))
    lines = path.read_bytes().splitlines(keepends=True)
    for num_lines in range(2, len(lines)):
        path.write_bytes(b"".join(lines[:num_lines]))
        replayed = replay(Trace(path))
        assert replayed.difference is None
        assert replayed.num_steps <= whole.num_steps
    assert replayed.num_steps == whole.num_steps > 5


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_damaged_traces_are_refused_or_differ_but_never_break_anything(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 10):
        damage_and_replay(tmp_path / "trace.jsonl", seed)


def damage_and_replay(path: Path, seed: int) -> None:
    """Lines lost, doubled, out of order."""
    rng = random.Random(seed)
    record(random_world(seed), path)
    header, *lines = path.read_bytes().splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(lines))
        line = lines.pop(place)
        lines.insert(rng.randrange(len(lines) + 1), line)
        lines[place : place + 1] = [line] * rng.choice([0, 1, 2])
    path.write_bytes(b"".join([header, *lines]))
    with contextlib.suppress(InvalidConfig):
        replay(Trace(path), made_as(partial(random_world, seed)))


@pytest.mark.parametrize(("kind", "changes"), [("commit", {"step": 99}), ("commit", {"tokens": [1, 2, 3]})])
def test_lines_that_contradict_each_other_are_refused_by_number(
    tmp_path: Path, kind: str, changes: dict[str, object]
) -> None:
    small_trace(tmp_path / "trace.jsonl")
    with pytest.raises(InvalidConfig, match=r"trace.jsonl, line \d+: does not follow from the lines before it"):
        replay(edited(tmp_path / "trace.jsonl", kind, **changes))
