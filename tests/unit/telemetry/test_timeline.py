import math

import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Admitted, Computed, Finished, Preempted, Queued, RuleFailed, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.request import FinishReason
from chairlift.telemetry.observers import Observers
from chairlift.telemetry.report import Slo, Spread
from chairlift.telemetry.timeline import Timeline
from fakes.requests import make_request, make_samples, make_search
from fakes.worlds.world import World

ONE, TWO, THREE = RequestId(1), RequestId(2), RequestId(3)
LAST = FinishReason.LENGTH


def token(request: RequestId, at: float, finish: FinishReason | None = None) -> Token:
    return Token(request, at, 0, None, finish)


def test_times_of_a_request_are_counted_from_its_arrival() -> None:
    timeline = Timeline()
    timeline.added((make_request(1, range(5)),), 10.0)
    events = [Queued(ONE, 10.0), Admitted(ONE, 11.0, 2), Computed(ONE, 12.0, 2, 3)]
    timeline.happened([*events, token(ONE, 12.0), token(ONE, 13.0), token(ONE, 16.0, LAST)])
    report = timeline.report()
    assert (report.queue_s.p50, report.ttft_s.p50, report.tpot_s.p50, report.e2e_s.p50) == (1.0, 2.0, 2.0, 6.0)
    assert (report.total_s, report.prompt_tokens, report.output_tokens, report.cache_hit_tokens) == (6.0, 5, 3, 2)
    assert report.requests_per_s == pytest.approx(1 / 6)


def test_a_single_token_has_no_time_between_tokens_and_meets_any_limit_on_it() -> None:
    timeline = Timeline()
    timeline.added((make_request(1, range(5)),), 0.0)
    timeline.happened([Admitted(ONE, 0.0, 0), token(ONE, 1.0, LAST)])
    report = timeline.report(Slo(tpot=1e-9))
    assert report.tpot_s == Spread()
    assert report.good == 1


def test_only_finished_requests_count_towards_latencies() -> None:
    timeline = Timeline()
    for i in (1, 2, 3):
        timeline.added((make_request(i, range(5)),), 0.0)
    timeline.happened([Admitted(r, 0.0, 0) for r in (ONE, TWO, THREE)])
    timeline.happened([token(ONE, 1.0, LAST), token(TWO, 1.0)])
    timeline.happened([Finished(TWO, 9.0, FinishReason.ABORT, ""), Finished(THREE, 9.0, FinishReason.ERROR, "broke")])
    report = timeline.report()
    assert (report.requests, report.finished, report.aborted, report.failed) == (3, 1, 1, 1)
    assert report.e2e_s.max == 1.0
    assert report.output_tokens == 2


def test_blocks_that_samples_of_a_prompt_save_are_counted() -> None:
    limits = Limits(vocab_size=50, max_model_len=24, block_size=4, num_blocks=20, max_running=3, max_step_tokens=30)
    world = World(limits, arrivals={0: [make_samples(1, range(8), 3, 4)]})
    world.engine.observer = timeline = Timeline(world.scheduler.pool)
    world.run()
    report = timeline.report()
    # The prompt's two blocks once instead of three times in each of four steps; from the second step on a block each.
    assert (report.blocks_saved.mean, report.blocks_saved.max) == (4.0, 4)
    assert (report.blocks.mean, report.blocks.max) == ((2 + 5 + 5 + 5) / 4, 5)
    assert "blocks        4.2 (at most 5) in use; sharing saved 4.0 (at most 4)" in report.to_text()


def test_preemptions_and_swaps_are_counted_and_a_return_is_no_second_admission() -> None:
    timeline = Timeline()
    timeline.added((make_request(1, range(5)),), 0.0)
    timeline.happened([Admitted(ONE, 1.0, 3, 2), Preempted(ONE, 2.0, 5, True), Admitted(ONE, 7.0, 5)])
    timeline.happened([Preempted(ONE, 8.0, 5, False), Admitted(ONE, 9.0, 5), token(ONE, 10.0, LAST)])
    report = timeline.report()
    assert (report.preemptions, report.swaps) == (2, 1)
    assert report.queue_s.max == 1.0
    assert (report.cache_hit_tokens, report.cache_missed_tokens) == (3, 2)
    assert "5 prompt (3 cached, 2 more for some layers alone)" in report.to_text()


def test_goodput_counts_requests_within_every_limit() -> None:
    timeline = Timeline()
    for i, first in ((1, 0.2), (2, 0.9)):
        timeline.added((make_request(i, range(5)),), 0.0)
        timeline.happened([Admitted(RequestId(i), 0.0, 0), token(RequestId(i), first), token(RequestId(i), 2.0, LAST)])
    assert timeline.report(Slo.parse("ttft=0.5")).good == 1
    assert Slo.parse("ttft=500ms, e2e=2s") == Slo(ttft=0.5, e2e=2.0)
    assert timeline.report(Slo.parse("ttft=0.5,tpot=1.5")).good == 0
    assert timeline.report(Slo.parse("ttft=1, tpot=2")).goodput_per_s == 1.0
    assert timeline.report().goodput_per_s is None


@pytest.mark.parametrize("text", ["ttft", "ttft=", "ttft=-1", "ttft=nan", "ttft=1m", "ttft=ms", "itl=1", ""])
def test_a_bad_slo_is_refused_with_the_known_names(text: str) -> None:
    with pytest.raises(InvalidConfig, match="ttft, tpot, e2e"):
        Slo.parse(text)


def competing(ann: int, bob: int) -> float:
    """Fairness when both have one request running and one waiting."""
    timeline = Timeline()
    for i, user in enumerate(["ann", "bob", "ann", "bob"], 1):
        timeline.added((make_request(i, range(5), user=user),), 0.0)
    timeline.happened([Admitted(ONE, 0.0, 0), Admitted(TWO, 0.0, 0)])
    timeline.happened([token(ONE, 0.5) for _ in range(ann)] + [token(TWO, 0.5) for _ in range(bob)])
    timeline.happened([Admitted(THREE, 1.0, 0), Admitted(RequestId(4), 1.0, 0)])
    return timeline.report().fairness


def test_equal_service_is_fair_and_one_sided_service_is_half_fair() -> None:
    assert competing(10, 10) == 1.0
    assert competing(10, 0) == 0.5
    assert 0.5 < competing(10, 3) < 1.0


def test_service_to_a_user_without_competition_is_fair() -> None:
    timeline = Timeline()
    timeline.added((make_request(1, range(5), user="ann"),), 0.0)
    timeline.added((make_request(2, range(5), user="bob"),), 5.0)
    timeline.happened([Admitted(ONE, 0.0, 0), token(ONE, 1.0, LAST), Admitted(TWO, 5.0, 0), token(TWO, 6.0, LAST)])
    report = timeline.report()
    assert report.fairness == 1.0
    assert report.users["bob"].ttft_mean_s == 1.0


def test_an_observed_world_is_counted_completely_and_nothing_of_it_is_kept() -> None:
    limits = Limits(vocab_size=50, max_model_len=24, block_size=4, num_blocks=6, max_running=3, max_step_tokens=8)
    groups = [(make_request(i, range(10 * i, 11 * i), 12),) for i in range(1, 5)] + [make_search(20, range(6), 2, 4)]
    world = World(limits, arrivals={0: groups}, aborts={3: [TWO]})
    timeline, twin = Timeline(), Timeline()
    world.engine.observer = Observers(timeline, twin)
    world.run()
    report = timeline.report()
    assert (report.requests, report.finished, report.aborted) == (5, 4, 1)
    assert report.output_tokens == sum(isinstance(event, Token) for event in world.events)
    assert report.preemptions == sum(isinstance(event, Preempted) for event in world.events) > 0
    assert report.steps == len(world.runner.plans)
    assert not timeline._live
    assert twin.report() == report


def test_a_failed_rule_is_named() -> None:
    timeline = Timeline()
    timeline.add(RuleFailed(RequestId(0), 1.0, "the policy failed"))
    assert timeline.report().rule_failures == ("the policy failed",)
    assert "replaced      the policy failed" in timeline.report().to_text()


def test_percentiles_lie_between_the_nearest_values() -> None:
    spread = Spread.of([4.0, 1.0, 2.0, math.nan, 3.0, 5.0])
    assert (spread.mean, spread.p50, spread.p90, spread.max) == (3.0, 3.0, pytest.approx(4.6), 5.0)


def test_the_report_as_text_names_every_figure_with_its_value() -> None:
    timeline = Timeline()
    for i, user in ((1, "ann"), (2, "")):
        timeline.added((make_request(i, range(5), user=user),), 0.0)
        timeline.happened([Admitted(RequestId(i), 0.1, 0), token(RequestId(i), 0.25), token(RequestId(i), 0.5, LAST)])
    report = timeline.report(Slo.parse("ttft=0.5"))
    text = report.to_text()
    assert "2: 2 finished" in text
    assert "4.00 requests/s: 2 within ttft=0.5s" in text
    assert text.splitlines()[-2].split() == ["(none)", "1", "5", "2", "250.00", "500.00"]
    assert report.to_json()["ttft_s"]["p90"] == 0.25
    assert report.to_json()["slo"] == "ttft=0.5s"
