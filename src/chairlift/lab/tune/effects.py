"""Which knobs matter: those that do not are reset to their default, and the effect of each of the others is measured.

A knob matters if its reset costs half a percent of what the goal counts, or two percent of the other figure.
"""

from dataclasses import dataclass

from chairlift.lab.tune.evaluate import Evaluation
from chairlift.lab.tune.goal import TOLERANCE
from chairlift.lab.tune.knobs import Value, changes, default_choice
from chairlift.lab.tune.search import Search
from chairlift.telemetry.report import Report

_OTHER_TOLERANCE = 4 * TOLERANCE
_NOTED = 0.03  # smaller moves are not mentioned


@dataclass(frozen=True, slots=True)
class Effect:
    name: str
    value: Value
    default: Value
    loss: float  # of what the goal counts, when this knob alone is reset
    gain: float  # when this knob alone is turned
    why: str  # the simulated figures that move with the reset


def simplified(search: Search, best: Evaluation) -> Evaluation:
    """An evaluation as good as the best with fewer knobs turned."""
    now = best
    while turned := changes(now.choice, search.knobs):
        default = default_choice(search.knobs)
        fewer = [{**now.choice, name: default[name]} for name in turned]
        search.run(fewer, is_whole=True)
        free = [evaluation for evaluation in map(search.evaluation, fewer) if _is_as_good(search, evaluation, best)]
        if not free:
            break
        # One at a time: a knob may matter once others are reset.
        now = min(free, key=lambda evaluation: search.goal.cost(evaluation.point))
    return now


def effects(search: Search, pick: Evaluation) -> list[Effect]:
    """Of every turned knob, the one that matters most first."""
    turned, default = changes(pick.choice, search.knobs), default_choice(search.knobs)
    without = {name: {**pick.choice, name: default[name]} for name in turned}
    alone = {name: {**default, name: value} for name, value in turned.items()}
    search.run([*without.values(), *alone.values()], is_whole=True)
    plain = search.evaluation(default)
    found = []
    for name, value in turned.items():
        back, single = search.evaluation(without[name]), search.evaluation(alone[name])
        loss = 1.0 - 1.0 / (1.0 + search.goal.gain(pick.point, back.point)) if back.is_whole else 1.0
        gain = search.goal.gain(single.point, plain.point) if single.is_whole else 0.0
        why = back.failure or _why(pick.report, back.report)
        found.append(Effect(name, value, default[name], loss, gain, why))
    return sorted(found, key=lambda effect: -effect.loss)


def _is_as_good(search: Search, evaluation: Evaluation, best: Evaluation) -> bool:
    goal = search.goal
    if not evaluation.is_whole or goal.meets(evaluation) < goal.meets(best):
        return False
    is_near = goal.cost(evaluation.point) <= goal.cost(best.point) * (1.0 + TOLERANCE)
    return is_near and goal.other(evaluation.point) <= goal.other(best.point) * (1.0 + _OTHER_TOLERANCE)


def _why(pick: Report | None, back: Report | None) -> str:
    """The figures that differ, as the pick has them and as they are without."""
    if pick is None or back is None:
        return ""
    figures = [
        ("steps", pick.steps, back.steps, "{:.0f}"),
        ("ms a step", 1e3 * pick.total_s / pick.steps, 1e3 * back.total_s / back.steps, "{:.2f}"),
        ("s to the first token (p50)", pick.ttft_s.p50, back.ttft_s.p50, "{:.3g}"),
        ("ms a token (p50)", 1e3 * pick.tpot_s.p50, 1e3 * back.tpot_s.p50, "{:.1f}"),
        ("preemptions", pick.preemptions, back.preemptions, "{:.0f}"),
        ("prompt tokens from the cache", pick.cache_hit_tokens, back.cache_hit_tokens, "{:.0f}"),
    ]
    moved = [
        f"{shape.format(now)} instead of {shape.format(then)} {name}"
        for name, now, then, shape in figures
        if abs(now - then) > _NOTED * max(now, then)
    ]
    return "; ".join(moved) or "no figure moves by more than 3 %"
