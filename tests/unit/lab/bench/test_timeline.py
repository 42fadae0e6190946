import pytest

from chairlift.lab.bench.record import Ending
from chairlift.lab.bench.timeline import RunTimeline, max_concurrency_of
from fakes.bench_records import record


def test_requests_wait_until_their_first_chunk_and_then_run() -> None:
    # 240 steps of half a second
    records = [record(0, 0.0, (40.0, 120.0)), record(1, 10.0, (60.0, 80.0))]
    timeline = RunTimeline.of(records)
    assert timeline.step_s == 0.5
    assert len(timeline.waiting) == len(timeline.running) == 240

    def at(second: float) -> tuple[int, int]:
        place = int(second / timeline.step_s) - 1  # the step that ends then
        return timeline.waiting[place], timeline.running[place]

    assert [at(second) for second in (5, 20, 50, 70, 100, 120)] == [(1, 0), (2, 0), (1, 1), (0, 2), (0, 1), (0, 0)]


def test_rates_add_up_to_all_tokens_and_answers() -> None:
    records = [record(0, 0.0, (1.0, 2.0, 3.3), tokens=9), record(1, 0.5, (7.1,), ending=Ending.FAILED)]
    timeline = RunTimeline.of(records)
    assert sum(timeline.tokens_per_s) * timeline.rate_step_s == pytest.approx(10)
    assert sum(timeline.answers_per_s) * timeline.rate_step_s == pytest.approx(1)


def test_a_request_without_a_chunk_only_waits() -> None:
    timeline = RunTimeline.of([record(0, 0.0, last_s=1.0, ending=Ending.CUT), record(1, 0.0, (2.0,))])
    assert max(timeline.waiting) == 2
    assert max(timeline.running) == 0


def test_an_empty_run_has_no_steps() -> None:
    assert RunTimeline.of([]).waiting == []


def test_steps_are_round_and_at_least_a_millisecond() -> None:
    assert RunTimeline.of([record(0, 0.0, (0.01,))]).step_s == pytest.approx(0.001)
    assert RunTimeline.of([record(0, 0.0, (100.0,))]).rate_step_s == pytest.approx(2.0)


def test_a_request_that_ends_as_another_begins_is_not_concurrent() -> None:
    records = [record(0, 0.0, (1.0,)), record(1, 1.0, (2.0,)), record(2, 1.5, (3.0,))]
    assert max_concurrency_of(records) == 2
