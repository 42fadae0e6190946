"""Predicted against measured: the default and the best few, each run for real, in turns.

Always: prediction and measurement are of the same requests. If the time does not suffice for all of them, it is the
first ones for both. What is compared is how much better than the default a setting is, for a machine's speed drifts.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from chairlift.telemetry.report import Report
from chairlift.tune.evaluate import Evaluator, Outcome, Point, Work, point_of
from chairlift.tune.goal import Goal
from chairlift.tune.knobs import Choice, shown, with_choice
from chairlift.tune.real import Model, in_own_process, measured

ROUNDS = 2
_LOAD_S = 12.0  # a guess: loading a model and warming it up
_FEWEST = 20  # requests
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

    def predicted_gain(self, verified: Verified) -> float:
        """Over the default."""
        return self.goal.gain(self._point(verified.predicted), self._point(self.each[0].predicted))

    def measured_gain(self, verified: Verified) -> float:
        """The median of the rounds, each against the default of the same round."""
        pairs = zip(verified.measured, self.each[0].measured, strict=False)
        return statistics.median(self.goal.gain(self._point(own), self._point(base)) for own, base in pairs)

    @property
    def is_there(self) -> bool:
        """Whether everyone has been measured at least once."""
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


def plan(work: Work, goal: Goal, outcomes: Sequence[Outcome], seconds: float) -> Verification:
    """What to run so that it takes about so long; `outcomes` has the default first."""
    predicted = [Evaluator(work).outcome(outcome.choice).report for outcome in outcomes]
    longest = max(report.total_s for report in predicted if report)
    seconds_each = max(1.0, seconds / (ROUNDS * len(outcomes)) - _LOAD_S)
    if longest > seconds_each:
        # Outputs make a request long, and the first of them may be short: a little less than its share.
        count = max(_FEWEST, int(0.9 * len(work.items) * seconds_each / longest))
        work = work.first(count)
        predicted = [Evaluator(work).outcome(outcome.choice).report for outcome in outcomes]
    each = tuple(Verified(o.choice, report) for o, report in zip(outcomes, predicted, strict=True) if report)
    return Verification(work, goal, each)


def carry_out(verification: Verification, model: Model, say: Say) -> None:
    """Fills in what is measured; interrupted, what was measured by then is there."""
    for number, verified in _turns(verification.each):
        work = verification.work
        what = f"round {number} of {ROUNDS}, {verification.in_words(verified)}"
        say(f"verifying, {what}: {verified.predicted.total_s:.0f} s predicted, once it is loaded and warm")
        settings = with_choice(work.settings, verified.choice)
        report = in_own_process(measured, model, settings, work.items, work.arrivals, work.seed)
        verified.measured.append(report)


def _turns(each: Sequence[Verified]) -> Iterator[tuple[int, Verified]]:
    """Forwards and backwards in turn, so that nobody always follows the same."""
    for number in range(1, ROUNDS + 1):
        for verified in each if number % 2 else reversed(each):
            yield number, verified
