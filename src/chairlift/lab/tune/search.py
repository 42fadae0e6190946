"""The search: a tree-structured Parzen estimator over all knobs at once, for throughput and latency together.

Begins with the default and every single change of it, goes on in generations of a fixed size, and ends with the
neighbours of the best. Always: the same work and seed try the same choices in the same order, for any number of
processes; a deadline only cuts that order short. No choice is tried twice.
"""

import random
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from chairlift.lab.tune.evaluate import Evaluation
from chairlift.lab.tune.goal import TOLERANCE, Goal, front
from chairlift.lab.tune.knobs import Choice, Knob, Value, default_choice, valid
from chairlift.lab.tune.workers import Workers

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import Trial

GENERATION = 16
LEAST, PATIENCE = 320, 96  # configurations: tried at least; tried without a better one before the search ends
_TRIES = 4  # to find a choice that is new

Watch = Callable[["Search"], None]  # called after each evaluation


class Search:
    """Everything that has been tried, by valid choice."""

    def __init__(self, workers: Workers, knobs: Sequence[Knob], goal: Goal, watch: Watch | None = None) -> None:
        self.workers = workers
        self.knobs = tuple(knobs)
        self.goal = goal
        self.num_done = 0  # also in the current generation
        self.is_cut = False  # whether the time was over before all that was wanted had been tried
        self._watch = watch
        self._tried: dict[tuple[Value, ...], Evaluation] = {}

    @property
    def evaluations(self) -> list[Evaluation]:
        return list(self._tried.values())

    @property
    def best(self) -> Evaluation | None:
        return self.goal.best(self._tried.values())

    def put(self, evaluation: Evaluation) -> None:
        self._tried[self._key(evaluation.choice)] = evaluation
        self.num_done = len(self._tried)

    def has(self, choice: Choice) -> bool:
        return self._key(self._valid(choice)) in self._tried

    def evaluation(self, choice: Choice) -> Evaluation:
        """Of a choice that has been tried."""
        return self._tried[self._key(self._valid(choice))]

    def run(self, choices: Iterable[Choice], is_whole: bool = False) -> None:
        """Tries the new ones; `is_whole`: to the end, even if others are better."""
        new = {self._key(choice): choice for choice in map(self._valid, choices)}
        known = {key for key, each in self._tried.items() if each.is_whole or each.failure or not is_whole}
        wanted = [choice for key, choice in new.items() if key not in known]
        rivals = [] if is_whole else [evaluation.point for evaluation in front(self._tried.values())]
        for evaluation in self.workers.evaluate(wanted, rivals, self._told):
            self.put(evaluation)

    def explore(self, seconds: float, seed: int = 0, least: int = LEAST, patience: int = PATIENCE) -> None:
        """Until the time is over or patience runs out."""
        ends = time.monotonic() + seconds
        self._run_by_generation(_single_changes(self.knobs), ends)
        sampler = _Sampler(self.knobs, seed)
        for evaluation in self.evaluations:
            sampler.tell(evaluation)
        improved_at, best = len(self._tried), self.best
        while len(self._tried) < least or len(self._tried) < improved_at + patience:
            if self._is_over(ends):
                break
            before = len(self._tried)
            wanted = sampler.ask(GENERATION, self.has)
            self.run(wanted)
            sampler.tell_asked([self.evaluation(choice) for choice in wanted])
            if self._is_better(self.best, best):
                improved_at, best = len(self._tried), self.best
            if len(self._tried) == before:  # nothing new is left
                break

    def polish(self, seconds: float) -> None:
        """Tries the neighbours of the best until none is better."""
        ends = time.monotonic() + seconds
        best = self.best
        while best is not None and not self._is_over(ends):
            self._run_by_generation(_neighbours(self.knobs, best.choice), ends)
            if not self._is_better(self.best, best):
                break
            best = self.best

    def _run_by_generation(self, choices: Iterable[Choice], ends: float) -> None:
        wanted = list(choices)
        for start in range(0, len(wanted), GENERATION):
            if self._is_over(ends):
                break
            self.run(wanted[start : start + GENERATION])

    def _is_over(self, ends: float) -> bool:
        """Asked only where there is more to try."""
        is_over = time.monotonic() >= ends
        self.is_cut = self.is_cut or is_over
        return is_over

    def _is_better(self, evaluation: Evaluation | None, than: Evaluation | None) -> bool:
        if evaluation is None or than is None:
            return evaluation is not None
        if self.goal.meets(evaluation) != self.goal.meets(than):
            return self.goal.meets(evaluation)
        return self.goal.gain(evaluation.point, than.point) > TOLERANCE / 5

    def _valid(self, choice: Choice) -> Choice:
        return valid(choice, self.knobs, self.workers.work.settings)

    def _key(self, choice: Choice) -> tuple[Value, ...]:
        return tuple(choice[knob.name] for knob in self.knobs)

    def _told(self) -> None:
        self.num_done += 1
        if self._watch is not None:
            self._watch(self)


def _single_changes(knobs: Sequence[Knob]) -> Iterator[Choice]:
    """The default with one knob turned; of numbers only every other value, for their neighbours do nearly the same."""
    default = default_choice(knobs)
    for knob in knobs:
        for value in knob.values[:: 2 if knob.is_ordered and len(knob.values) > 4 else 1]:
            yield {**default, knob.name: value}


def _neighbours(knobs: Sequence[Knob], choice: Choice) -> Iterator[Choice]:
    for knob in knobs:
        for value in knob.near(choice[knob.name]):
            yield {**choice, knob.name: value}


class _Sampler:
    """Optuna's sampler. A number is an index into its knob's values."""

    def __init__(self, knobs: Sequence[Knob], seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._knobs = {knob.name: knob for knob in knobs}
        self._distributions: dict[str, BaseDistribution] = {
            knob.name: optuna.distributions.IntDistribution(0, len(knob.values) - 1)
            if knob.is_ordered
            else optuna.distributions.CategoricalDistribution(knob.values)
            for knob in knobs
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that multivariate may change in later versions
            sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=32)
        self._study: Study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        self._asked: list[Trial | None] = []  # None: drawn at random
        self._rng = random.Random(seed)

    def ask(self, count: int, is_known: Callable[[Choice], bool]) -> list[Choice]:
        """Choices that are not known; fewer if a few tries find none."""
        new = [found for _ in range(count) if (found := self._new(is_known)) is not None]
        self._asked = [trial for trial, _ in new]
        return [choice for _, choice in new]

    def _new(self, is_known: Callable[[Choice], bool]) -> "tuple[Trial | None, Choice] | None":
        for _ in range(_TRIES):
            trial = self._study.ask(self._distributions)
            params = trial.params
            choice = {n: k.values[params[n]] if k.is_ordered else params[n] for n, k in self._knobs.items()}
            if not is_known(choice):
                return trial, choice
            self._fail(trial)
        for _ in range(_TRIES):  # then at random
            choice = {name: self._rng.choice(knob.values) for name, knob in self._knobs.items()}
            if not is_known(choice):
                return None, choice
        return None

    def _fail(self, trial: "Trial") -> None:
        from optuna.trial import TrialState

        self._study.tell(trial, state=TrialState.FAIL)

    def tell_asked(self, evaluations: Sequence[Evaluation]) -> None:
        for trial, evaluation in zip(self._asked, evaluations, strict=True):
            if trial is None:
                self.tell(evaluation)
            elif evaluation.failure:
                self._fail(trial)
            else:
                self._study.tell(trial, evaluation.point)

    def tell(self, evaluation: Evaluation) -> None:
        """Of a choice that was not asked for."""
        import optuna

        if not evaluation.failure:
            choice, values = evaluation.choice, list(evaluation.point)
            params = {n: k.values.index(choice[n]) if k.is_ordered else choice[n] for n, k in self._knobs.items()}
            trial = optuna.trial.create_trial(params=params, distributions=self._distributions, values=values)
            self._study.add_trial(trial)
