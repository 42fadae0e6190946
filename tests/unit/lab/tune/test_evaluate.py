import itertools

import pytest

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.lab.sim.run import run
from chairlift.lab.tune.evaluate import Evaluator, Point
from chairlift.lab.tune.knobs import default_choice
from chairlift.lab.tune.workers import Workers
from chairlift.lab.workload.arrivals import parse_arrivals
from fakes.tuned import KNOBS, PROFILE, items, work

CHOICES = [
    {"policy": policy, "max_running": running, "max_step_tokens": 64, "admission": "prompt"}
    for policy, running in itertools.product(("fcfs", "longest-first", "shortest-first"), (2, 4, 8, 16))
]


def test_an_evaluation_is_what_the_simulator_says() -> None:
    evaluation = Evaluator(work(arrivals="poisson:rate=20")).evaluate(CHOICES[5])
    settings = Settings(policy="longest-first", max_running=4, max_step_tokens=64)
    report = run(settings, PROFILE, items(), parse_arrivals("poisson:rate=20"))
    assert evaluation.report == report
    assert evaluation.point == Point(report.output_tokens_per_s, report.e2e_s.mean)


def test_only_what_a_rival_beats_at_both_is_given_up() -> None:
    evaluator = Evaluator(work(200))
    whole = [evaluator.evaluate(choice) for choice in CHOICES]
    rivals = [evaluation.point for evaluation in whole]
    num_given_up = 0
    for choice, truth in zip(CHOICES, whole, strict=True):
        evaluation = evaluator.evaluate(choice, rivals)
        if evaluation.is_whole:
            assert evaluation == truth
        else:
            num_given_up += 1
            better = [r for r in rivals if r.throughput > truth.point.throughput and r.latency < truth.point.latency]
            assert better
            # What it is said to have reached is a bound on the good side.
            assert evaluation.point.throughput >= truth.point.throughput
            assert evaluation.point.latency <= truth.point.latency
    assert num_given_up >= 3


def test_with_targets_the_latency_is_the_part_of_the_limit() -> None:
    evaluation = Evaluator(work(slo="ttft_p50=100ms")).evaluate(CHOICES[0])
    assert evaluation.report is not None
    assert evaluation.point.latency == pytest.approx(evaluation.report.ttft_s.p50 / 0.1)


def test_a_setting_that_cannot_hold_the_longest_request_fails_by_itself() -> None:
    evaluation = Evaluator(work()).evaluate({"max_running": 8, "num_blocks": 1})
    assert not evaluation.is_whole
    assert "does not fit" in evaluation.failure


def test_two_settings_that_exclude_each_other_fail_by_themselves() -> None:
    assert "max_step_tokens 8" in Evaluator(work()).evaluate({"max_running": 16, "max_step_tokens": 8}).failure


def test_a_request_that_can_never_be_served_is_named_at_once() -> None:
    with pytest.raises(InvalidConfig, match="request 1 of the workload"):
        Workers(work(1).__class__(Settings(max_model_len=5), {0: PROFILE}, items(1), "none"), 1)


def test_processes_give_the_evaluations_of_this_one_in_order() -> None:
    told = []
    with Workers(work(), 2) as two, Workers(work(), 1) as one:
        evaluations = two.evaluate(CHOICES, done=lambda: told.append(1))
        assert evaluations == one.evaluate(CHOICES)
        assert two.evaluator.evaluate(default_choice(KNOBS)) == one.evaluator.evaluate(default_choice(KNOBS))
    assert len(told) == len(CHOICES)
