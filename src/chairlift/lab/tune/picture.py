"""The charts of a tuning: throughput against latency with the front, the default and the pick; and what matters."""

from collections.abc import Iterable
from itertools import pairwise

from chairlift.lab.report.chart import PlotSeries, PlotStyle, Point, bars, plot
from chairlift.lab.report.frame import Chart
from chairlift.lab.tune.evaluate import Evaluation, point_of
from chairlift.lab.tune.goal import front
from chairlift.lab.tune.tuning import Tuning
from chairlift.lab.tune.verify import Verification

_GREY, _BLUE, _ORANGE, _GREEN = 6, 0, 1, 2
_WIDE = 6.0  # times the smallest latency: from there on its axis is logarithmic


def charts(tuning: Tuning, verification: Verification | None) -> list[Chart]:
    return [_front(tuning, verification), *([_effects(tuning)] if tuning.effects else [])]


def _front(tuning: Tuning, verification: Verification | None) -> Chart:
    whole = [evaluation for evaluation in tuning.final if evaluation.is_whole]
    best = _points(front(whole))
    stairs = [point for (x, y), (after, _) in pairwise(best) for point in ((x, y), (after, y))]
    series = [
        PlotSeries(_points(whole), "settings that were tried", hue=_GREY, look="large"),
        PlotSeries([*stairs, *best[-1:]], kind=PlotStyle.LINE, hue=_BLUE),
        PlotSeries(best, "front: none is better at both", hue=_BLUE, look="large"),
    ]
    if tuning.pick is not None and not tuning.is_default_fine:
        series.append(PlotSeries(_points([tuning.pick]), "the pick", PlotStyle.DIAMOND, _GREEN))
    if tuning.default is not None:
        series.append(PlotSeries(_points([tuning.default]), "the defaults", PlotStyle.STAR, _ORANGE))
    if verification is not None and verification.is_there and len(verification.work.items) == len(tuning.work.items):
        measured = [point_of(run, tuning.work.targets) for each in verification.each for run in each.measured]
        series.append(
            PlotSeries([(point.latency, point.throughput) for point in measured], "measured", PlotStyle.CROSS)
        )
    latencies = [evaluation.point.latency for evaluation in whole]
    targets = tuning.work.targets
    across = (
        f"part of the tightest limit that is used ({targets})" if targets else "mean latency, s (arrival to last token)"
    )
    return plot(
        "output tokens a second against latency, simulated", series, across, from_zero="",
        is_log=0 < _WIDE * min(latencies) < max(latencies), marks={"limit": 1.0} if targets else {},
    )  # fmt: skip


def _effects(tuning: Tuning) -> Chart:
    names = [f"{effect.name.replace('_', '-')} {effect.value}" for effect in tuning.effects]
    what = "room below the limits" if tuning.work.targets else "speed by latency"
    what = "throughput" if tuning.goal.is_throughput else what
    losses = [round(100 * effect.loss, 1) for effect in tuning.effects]
    return bars(f"{what} lost without it", names, {"loss": losses}, " %")


def _points(evaluations: Iterable[Evaluation]) -> list[Point]:
    return [(evaluation.point.latency, evaluation.point.throughput) for evaluation in evaluations]
