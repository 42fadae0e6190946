"""Predicted against measured: the default and the best few, each run for real, in turns.

Always: prediction and measurement are of the same requests. If time is short these are the first ones; if it is too
short for enough of them, fewer settings and one round. Gains over the default are compared, as speed drifts.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chairlift.build import ResolvedModel
from chairlift.lab.tune.evaluate import Evaluation, Evaluator, Point, Work, point_of
from chairlift.lab.tune.goal import Goal
from chairlift.lab.tune.knobs import Choice, shown, with_choice
from chairlift.lab.tune.real import in_own_process, measured
from chairlift.telemetry.report import Report

_LOAD_S = 8.0  # a guess: a new process, and loading a model
_WARM_SHARE = 0.25  # of a run goes before it
_FEWEST = 20  # requests
_EXTENTS = ((2, 3), (2, 2), (1, 2))  # rounds and settings, as the time allows
_CLEARLY = 0.02  # gain beyond that of the pick: less may be the machine

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Verified:
    choice: Choice
    predicted: Report
    measured: list[Report] = field(default_factory=list)  # one a round


@dataclass(frozen=True, slots=True)
class Verification:
    work: Work
    goal: Goal
    each: tuple[Verified, ...]  # the default first
    num_rounds: int

    def predicted_gain(self, verified: Verified) -> float:
        """Over the default."""
        return self.goal.gain(self._point(verified.predicted), self._point(self.each[0].predicted))

    def measured_gain(self, verified: Verified) -> float:
        """The median of the rounds, each against the default of the same round."""
        pairs = zip(verified.measured, self.each[0].measured, strict=False)
        return statistics.median(self.goal.gain(self._point(own), self._point(base)) for own, base in pairs)

    @property
    def is_there(self) -> bool:
        """Whether each has been measured at least once."""
        return all(verified.measured for verified in self.each)

    def best(self, pick: Choice) -> Verified:
        """The pick, unless another was measured to be clearly better."""
        best = max(self.each, key=self.measured_gain)
        picked = next(verified for verified in self.each if verified.choice == pick)
        return best if self.measured_gain(best) > self.measured_gain(picked) + _CLEARLY else picked

    def in_words(self, verified: Verified) -> str:
        """As flags that differ from the default's."""
        default = self.each[0].choice
        return shown({name: value for name, value in verified.choice.items() if value != default[name]})

    def _point(self, report: Report) -> Point:
        return point_of(report, self.work.targets)


def plan(work: Work, goal: Goal, evaluations: Sequence[Evaluation], seconds: float) -> Verification:
    """A verification of about so many seconds, or the smallest useful one; the default comes first."""
    whole = [Evaluator(work).evaluate(evaluation.choice).report for evaluation in evaluations]
    longest = (1.0 + _WARM_SHARE) * max(report.total_s for report in whole if report)
    for num_rounds, most in _EXTENTS:
        num_runs = num_rounds * min(most, len(evaluations))
        share = (seconds / num_runs - _LOAD_S) / longest  # of the workload
        # Outputs make a request long, and the first of them may be short: a little less than its share.
        count = len(work.items) if share >= 1.0 else int(0.9 * share * len(work.items))
        if count >= min(_FEWEST, len(work.items)):
            break
    work, evaluations = work.first(max(_FEWEST, count)), evaluations[:most]
    predicted = [Evaluator(work).evaluate(evaluation.choice).report for evaluation in evaluations]
    each = tuple(Verified(o.choice, report) for o, report in zip(evaluations, predicted, strict=True) if report)
    return Verification(work, goal, each, num_rounds)


def carry_out(verification: Verification, model: ResolvedModel, say: Say) -> None:
    """Fills in the measurements, one by one."""
    work = verification.work
    for number in range(1, verification.num_rounds + 1):
        # Forwards and backwards in turn, so that the order does not favour any.
        for verified in verification.each if number % 2 else reversed(verification.each):
            what = f"round {number} of {verification.num_rounds}, {verification.in_words(verified)}"
            say(f"verifying, {what}: {verified.predicted.total_s:.0f} s predicted, once it is loaded and warm")
            chosen = model.under(with_choice(model.settings, verified.choice))
            num_warm = max(1, int(_WARM_SHARE * len(work.items)))
            report = in_own_process(measured, chosen, work.items, num_warm, work.arrivals, work.seed)
            verified.measured.append(report)
