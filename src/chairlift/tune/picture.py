"""The picture of a tuning: throughput against latency with the front, the default and the pick; and what matters."""

import io
from typing import TYPE_CHECKING

from chairlift.tune.evaluate import Outcome, point_of
from chairlift.tune.goal import front
from chairlift.tune.tuning import Tuning
from chairlift.tune.verify import Verification

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GREY, _BLUE, _ORANGE, _GREEN = "#b9b9b9", "#1b5e8c", "#d1701b", "#3a8f4d"
_WIDE = 6.0  # times the smallest latency: from there on its axis is logarithmic


def to_png(tuning: Tuning, verification: Verification | None, title: str) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    has_effects = bool(tuning.effects)
    figure = Figure(figsize=(11.5 if has_effects else 7.5, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11)
    grid = figure.subplots(1, 2 if has_effects else 1, squeeze=False, width_ratios=[3, 2] if has_effects else [1])
    _draw_front(grid[0][0], tuning, verification)
    if has_effects:
        _draw_effects(grid[0][1], tuning)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()


def _draw_front(place: "Axes", tuning: Tuning, verification: Verification | None) -> None:
    whole = [outcome for outcome in tuning.final if outcome.is_whole]
    best = front(whole)
    place.scatter(*_places(whole), s=12, color=_GREY, label="settings that were tried", zorder=1)
    place.step(*_places(best), where="post", color=_BLUE, linewidth=1.2, zorder=2)
    place.scatter(*_places(best), s=22, color=_BLUE, label="front: none is better at both", zorder=3)
    if tuning.default is not None:
        place.scatter(*_places([tuning.default]), s=130, marker="*", color=_ORANGE, label="the defaults", zorder=5)
    if tuning.pick is not None and not tuning.is_default_fine:
        place.scatter(*_places([tuning.pick]), s=80, marker="D", color=_GREEN, label="the pick", zorder=4)
    if verification is not None and verification.is_there and _is_all(verification, tuning):
        measured = [point_of(run, tuning.work.targets) for each in verification.each for run in each.measured]
        where = ([point.latency for point in measured], [point.throughput for point in measured])
        place.scatter(*where, s=40, marker="x", color="black", label="measured", zorder=6)
    latencies = [outcome.point.latency for outcome in whole]
    if min(latencies) > 0 and max(latencies) > _WIDE * min(latencies):
        place.set_xscale("log")
    if tuning.work.targets is None:
        place.set_xlabel("mean latency, s (arrival to last token)", fontsize=9)
    else:
        place.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
        place.set_xlabel(f"part of the tightest limit that is used ({tuning.work.targets})", fontsize=9)
    place.set_ylabel("output tokens a second", fontsize=9)
    place.set_title("throughput against latency, simulated", fontsize=9)
    _dress(place)
    place.legend(fontsize=7.5, frameon=False)


def _draw_effects(place: "Axes", tuning: Tuning) -> None:
    names = [f"{effect.name.replace('_', '-')} {effect.value}" for effect in tuning.effects]
    losses = [100 * effect.loss for effect in tuning.effects]
    bars = place.barh(range(len(names)), losses, color=_BLUE, height=0.6)
    place.bar_label(bars, labels=[f"{loss:.1f} %" for loss in losses], padding=3, fontsize=8)
    place.set_yticks(range(len(names)), names, fontsize=8)
    place.invert_yaxis()
    place.margins(x=0.2)
    what = "room below the limits" if tuning.work.targets else "speed by latency"
    what = "throughput" if tuning.goal.is_throughput else what
    place.set_title(f"{what} lost when this one is put back", fontsize=9)
    _dress(place)


def _places(outcomes: list[Outcome]) -> tuple[list[float], list[float]]:
    return [outcome.point.latency for outcome in outcomes], [outcome.point.throughput for outcome in outcomes]


def _is_all(verification: Verification, tuning: Tuning) -> bool:
    return len(verification.work.items) == len(tuning.work.items)


def _dress(place: "Axes") -> None:
    place.tick_params(labelsize=8)
    place.grid(alpha=0.25)
    place.set_axisbelow(True)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)
