import json
import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from chairlift.config.scheduler import Rules
from chairlift.core import events
from chairlift.core.errors import InvalidConfig
from chairlift.core.ids import BlockId, RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import FinishReason
from chairlift.core.score import ScoreList, TokenScore
from chairlift.telemetry.lines import WRITTEN, Add, Commit, Input, Plan, line_of, read
from chairlift.telemetry.recorder import Recorder
from chairlift.telemetry.timeline import Timeline
from chairlift.telemetry.trace import Trace, digest, samples_of, summarize
from fakes.drafts import RandomDrafter
from fakes.requests import make_request, make_samples
from fakes.traces import record
from fakes.worlds.draws import random_world
from fakes.worlds.world import World

LIMITS = Limits(vocab_size=50, max_model_len=32, block_size=4, num_blocks=8, max_running=3, max_step_tokens=8)
EXAMPLES: tuple[events.Event, ...] = (
    events.Queued(RequestId(1), 0.5),
    events.Admitted(RequestId(1), 0.5, 3),
    events.Forked(RequestId(1), 0.5, RequestId(2)),
    events.Preempted(RequestId(1), 0.5, 7, True),
    events.Exported(RequestId(1), 0.5, 7, (BlockId(3), BlockId(0))),
    events.Computed(RequestId(1), 0.5, 4, 5),
    events.PromptScored(RequestId(1), 0.5),
    events.Embedded(RequestId(1), 0.5, b"\x00\x80"),
    events.Token(RequestId(1), 0.1 + 0.2, 9, None, FinishReason.STOP),
    events.Finished(RequestId(1), 0.5, FinishReason.ERROR, "broke"),
    events.RuleFailed(RequestId(0), 0.5, "no"),
    events.Shrunk(RequestId(0), 0.5, 8, "no room"),
)


def small_trace(path: Path) -> Trace:
    groups = [(make_request(1, range(9), 3, user="ann"),), make_samples(2, range(4), 2, 2, cache_salt="secret")]
    return record(World(LIMITS, arrivals={0: groups}), path)


def test_there_is_an_example_of_every_kind_of_event() -> None:
    assert {type(event) for event in EXAMPLES} == set(events.Event.__args__)


@pytest.mark.parametrize("event", EXAMPLES)
def test_an_event_is_the_same_after_writing_and_reading(event: events.Event) -> None:
    again = read(msgspec.json.decode(msgspec.json.encode(line_of(event)), type=WRITTEN))
    assert (type(again), again) == (type(event), event)


def test_scores_are_not_written() -> None:
    score = TokenScore(9, 0.0, -1.0, 1, ())
    assert read(line_of(events.Token(RequestId(1), 0.5, 9, score))) == events.Token(RequestId(1), 0.5, 9)
    assert read(line_of(events.PromptScored(RequestId(1), 0.5, ScoreList([score])))) == events.PromptScored(
        RequestId(1), 0.5
    )


def test_a_trace_holds_every_event_of_the_run_in_order(tmp_path: Path) -> None:
    world = random_world(11)
    trace = record(world, tmp_path / "trace.jsonl")
    told = [read(line_of(event)) for event in world.events]
    assert [line for line in trace if not isinstance(line, Input)] == told


def test_a_trace_names_every_plan_and_what_it_computes(tmp_path: Path) -> None:
    world = random_world(11)
    trace = record(world, tmp_path / "trace.jsonl")
    plans = [line for line in trace if isinstance(line, Plan) and line.step is not None]
    assert [line.digest for line in plans] == [digest(plan) for plan in world.runner.plans]
    assert [line.chunks for line in plans] == [
        [(chunk.request.id, chunk.start, chunk.count) for chunk in plan.chunks] for plan in world.runner.plans
    ]


def test_admissions_come_before_the_commit_of_their_step(tmp_path: Path) -> None:
    lines = list(small_trace(tmp_path / "trace.jsonl"))
    first_commit = next(i for i, line in enumerate(lines) if isinstance(line, Commit))
    kinds = [type(line).__name__ for line in lines]
    assert kinds.index("Admitted") < first_commit < kinds.index("Computed")


def test_a_salt_is_not_written_down_but_still_parts_prompts(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    adds = [line for line in small_trace(path) if isinstance(line, Add)]
    assert "secret" not in path.read_text()
    assert [request.attributes.cache_salt == "" for add in adds for request in samples_of(add)] == [True, False, False]


def test_digests_differ_where_plans_differ(tmp_path: Path) -> None:
    plans = []
    for prompt in (range(9), range(1, 10), range(8)):
        world = World(LIMITS, arrivals={0: [(make_request(1, prompt, 3),)]}).run()
        plans.append([digest(plan) for plan in world.runner.plans])
    assert plans[0] == plans[1], "the tokens of a prompt do not change what is planned"
    assert plans[0] != plans[2]


def test_digests_differ_where_drafts_differ() -> None:
    request = make_request(1, range(9), 3)
    chunks = [Chunk(request, 8, 2, request.prompt, 9, ((),), 0, (request,), drafts) for drafts in ((1,), (2,), ())]
    assert len({digest(StepPlan(1, (chunk,), (), 2, 0)) for chunk in chunks}) == 3


def test_a_trace_has_every_draft_and_what_came_of_it(tmp_path: Path) -> None:
    world = World(replace(LIMITS, max_drafts=3), drafter=RandomDrafter(1, 50))
    world.arrivals = {0: [(make_request(1, range(8), 12),)]}
    trace = record(world, tmp_path / "trace.jsonl")
    drafts = [list(chunk.drafts) for plan in world.runner.plans for chunk in plan.chunks if chunk.drafts]
    assert [tokens for line in trace if isinstance(line, Plan) for tokens in line.drafts.values()] == drafts
    commits = [line for line in trace if isinstance(line, Commit)]
    tokens = [token for line in commits for token in (*line.tokens, *line.more.get(RequestId(1), ()))]
    assert tokens == world.outputs()[RequestId(1)]
    assert any(line.more for line in commits)


def test_a_summary_of_the_trace_is_the_report_of_the_run(tmp_path: Path) -> None:
    num_saved = 0
    for seed in range(12):
        trace = record(random_world(seed, drafts=seed % 3 == 0), tmp_path / "trace.jsonl")
        twin = random_world(seed, drafts=seed % 3 == 0)
        twin.engine.observer = timeline = Timeline(twin.scheduler.pool)
        twin.run()
        assert summarize(trace) == timeline.report()
        num_saved += timeline.report().blocks_saved.max
    assert num_saved, "nothing was shared: too easy"


def test_what_a_killed_process_left_half_written_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    count = len(list(small_trace(path)))
    path.write_bytes(path.read_bytes()[:-5])
    assert len(list(Trace(path))) == count - 1


def test_everything_is_in_the_file_when_the_engine_is_idle(tmp_path: Path) -> None:
    world = World(LIMITS, arrivals={0: [(make_request(1, range(9), 3),)]})
    path = tmp_path / "trace.jsonl"
    with closing(Recorder(path, world.scheduler, Rules(), "ledger", "virtual", 1)) as recorder:
        world.engine.observer = recorder
        world.run()
        text = path.read_text()
    assert '"finish":"length"' in text.splitlines()[-1]


def test_a_file_that_cannot_be_written_any_more_ends_the_recording_not_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(LIMITS, arrivals={0: [(make_request(1, range(9), 3),)]})
    world.engine.observer = Recorder(Path("/dev/full"), world.scheduler, Rules(), "ledger", "virtual", 1)
    with caplog.at_level(logging.WARNING):
        world.run()
    assert [record.getMessage() for record in caplog.records] == [
        "the trace ends here: /dev/full cannot be written: No space left on device"
    ]


def test_a_file_that_cannot_be_opened_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be written: No such file"):
        Recorder(tmp_path / "no" / "trace.jsonl", World(LIMITS).scheduler, Rules(), "ledger", "virtual", 1)


def test_no_other_user_can_read_a_trace_not_even_one_that_existed_before(tmp_path: Path) -> None:
    for path in (tmp_path / "new", tmp_path / "old"):
        if path.name == "old":
            path.touch(0o644)
        small_trace(path)
        assert path.stat().st_mode & 0o777 == 0o600


def test_another_version_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    small_trace(path)
    header, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(header) | {"version": 3}), *rest]) + "\n")
    with pytest.raises(
        InvalidConfig, match=r"trace\.jsonl: trace version 3 is not known; this release reads version 2"
    ):
        Trace(path)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "malformed"),
        ("{}", "missing required field `kind`"),
        ('{"kind":"jump","at":1}', "Invalid value 'jump'"),
        ('{"kind":"token","at":"soon","request":1,"token":2}', "Expected `float`, got `str`"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "trace.jsonl"
    small_trace(path)
    with path.open("a") as file:
        file.write(line + "\n")
    number = len(path.read_text().splitlines())
    with pytest.raises(InvalidConfig) as error:
        list(Trace(path))
    assert f"trace.jsonl, line {number}: " in str(error.value)
    assert complaint in str(error.value)


@pytest.mark.parametrize("text", ["", "nonsense\n", '{"prompt_tokens":3}\n'])
def test_a_file_without_a_header_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match="line 1: not the header of a trace"):
        Trace(path)
