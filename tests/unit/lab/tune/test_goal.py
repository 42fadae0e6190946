from chairlift.lab.tune.evaluate import Evaluation, Evaluator, Point
from chairlift.lab.tune.goal import Goal, front, goal_of
from chairlift.telemetry.report import Report
from fakes.tuned import work

REPORT = Evaluator(work(3)).evaluate({}).report


def evaluation(throughput: float, latency: float, report: Report | None = REPORT) -> Evaluation:
    return Evaluation({"at": f"{throughput} {latency}"}, Point(throughput, latency), report)


FAST, SOON, BOTH, POOR = evaluation(100, 5.0), evaluation(50, 1.0), evaluation(99.8, 3.0), evaluation(40, 6.0)
GIVEN_UP = evaluation(1000, 0.0, None)


def test_the_front_is_what_none_beats_at_both() -> None:
    assert front([POOR, FAST, SOON, GIVEN_UP, BOTH]) == [SOON, BOTH, FAST]


def test_small_differences_are_none_and_the_other_figure_decides() -> None:
    assert Goal(True, False).best([POOR, FAST, SOON, BOTH, GIVEN_UP]) == BOTH
    assert Goal(False, False).best([POOR, FAST, SOON, BOTH, GIVEN_UP]) == SOON


def test_meeting_the_targets_ranks_before_missing_them() -> None:
    goal = Goal(True, True)
    assert goal.best([FAST, SOON, BOTH]) == SOON
    assert goal.ranked([FAST, BOTH, SOON])[0] == SOON
    assert goal.best([FAST, BOTH, POOR]) == BOTH  # none does: the nearest
    assert goal.best([GIVEN_UP]) is None


def test_a_gain_is_relative() -> None:
    assert Goal(True, False).gain(Point(110, 1), Point(100, 1)) == 110 / 100 - 1
    assert round(Goal(False, False).gain(Point(1, 2.0), Point(1, 3.0)), 9) == 0.5


def test_throughput_counts_unless_the_arrivals_set_the_pace() -> None:
    assert REPORT is not None
    assert goal_of(REPORT, 0.0, False).is_throughput
    assert not goal_of(REPORT, 0.99 * REPORT.total_s, False).is_throughput
    assert goal_of(REPORT, 0.5 * REPORT.total_s, False).is_throughput
