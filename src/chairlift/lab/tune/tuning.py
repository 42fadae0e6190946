"""A whole tuning: search, effects of knobs, capacity. Results so far can be read at any time.

Always: the pick is as good as the best found, and the default if nothing is better.

Targets that the default meets at the given rate do not tell settings apart. The search then runs at a rate a little
beyond the default's capacity, and the setting with the highest capacity is picked.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from chairlift.core.errors import InvalidConfig
from chairlift.lab.tune.capacity import arrivals_at, capacity, check_possible, last_arrival_s
from chairlift.lab.tune.effects import Effect, effects, simplified
from chairlift.lab.tune.evaluate import Evaluation, Evaluator, Work
from chairlift.lab.tune.goal import Goal, front, goal_of
from chairlift.lab.tune.knobs import Choice, Knob, default_choice
from chairlift.lab.tune.search import LEAST, PATIENCE, Search, Watch
from chairlift.lab.tune.workers import Workers

_SEARCH_SHARE, _POLISH_SHARE = 0.75, 0.15  # of the time there is; the rest is for what matters
_FEWEST = 100  # requests that a search is made on
_FINALISTS = 16
_CONTENDERS = 6  # for the highest capacity
_RAISE = 1.1  # times the default's capacity
FINE = 0.05  # a gain below which nothing is worth changing: a simulation may be off by as much

Say = Callable[[str], None]


@dataclass(slots=True)
class Tuning:
    work: Work
    knobs: tuple[Knob, ...]
    seconds: float
    num_workers: int | None = None
    least: int = LEAST  # configurations
    # Filled in as they become known:
    goal: Goal = field(default_factory=lambda: Goal(True, False))
    default: Evaluation | None = None
    pick: Evaluation | None = None
    evaluations: list[Evaluation] = field(default_factory=list)  # all, of the workload or of its first part
    final: list[Evaluation] = field(default_factory=list)  # of the whole workload
    num_searched: int = 0  # requests that the search was made on
    search_s: float = 0.0
    is_cut: bool = False  # whether the search was ended by the time
    effects: list[Effect] = field(default_factory=list)
    capacities: tuple[float, float] | None = None  # of the default and of the pick, requests a second
    is_raised: bool = False  # whether the work's arrivals were made faster than they were given

    def run(self, say: Say, watch: Watch | None = None) -> None:
        started = time.monotonic()
        if self.work.targets is not None:
            self._raise(say)
        with Workers(self.work, self.num_workers) as workers:
            cost_s = self._begin(workers)
            count = self._num_affordable(cost_s, workers.count)
            say(f"searching: {len(self.knobs)} knobs, the first {count} of {len(self.work.items)} requests")
            final = self._search(workers, count, watch)
            self.search_s = time.monotonic() - started
            say("finding out what matters")
            self._conclude(final)
            if self.work.targets is not None:
                say("finding the highest rate that meets the targets")
                self._find_capacities(final)

    def _raise(self, say: Say) -> None:
        """Makes the arrivals faster if the default meets the targets."""
        evaluator, choice = Evaluator(self.work), default_choice(self.knobs)
        check_possible(evaluator, choice)
        last_s = last_arrival_s(evaluator)
        default = evaluator.evaluate(choice)
        if not last_s or default.report is None or default.point.latency > 1.0:
            return
        held = capacity(evaluator, choice)
        if not held:
            return
        rate, recorded_s = _RAISE * held, self.work.items[-1].arrival_s
        if rate * last_s <= len(self.work.items) - 1:
            return  # faster already, with too few requests to build a queue
        arrivals = arrivals_at(self.work.arrivals, rate, len(self.work.items), recorded_s)
        say(f"the defaults meet the targets as it is; searching at {rate:.3g} requests a second")
        self.work, self.is_raised = replace(self.work, arrivals=arrivals), True

    def _find_capacities(self, search: Search) -> None:
        assert self.default is not None and self.pick is not None
        contenders = [self.default, self.pick]
        if self.is_raised:
            ranked = self.goal.ranked(self.final)[:_CONTENDERS]
            known = [each.choice for each in contenders]
            contenders += [each for each in ranked if each.choice not in known]
        rates = search.workers.map(capacity, [(each.choice,) for each in contenders])
        best = 1
        if self.is_raised:
            # The default has no knob turned, and the pick few: a little more capacity is not worth another.
            best = next(i for i, rate in enumerate(rates) if rate >= max(rates) / (1.0 + FINE))
            self.pick = contenders[best]
            self.effects = effects(search, self.pick)
            self.final = search.evaluations
        self.capacities = (rates[0], rates[best])

    def _begin(self, workers: Workers) -> float:
        """Evaluates the default, sets the goal and returns the processor time of one simulation."""
        choice = default_choice(self.knobs)
        started = time.process_time()
        default = workers.evaluator.evaluate(choice)
        cost_s = time.process_time() - started
        if default.report is None:
            raise InvalidConfig(default.failure)
        self.goal = goal_of(default.report, last_arrival_s(workers.evaluator), self.work.targets is not None)
        if self.is_raised:  # no setting need meet the targets at that rate: the nearest has the highest capacity
            self.goal = Goal(is_throughput=False, has_targets=False)
        self.default = self.pick = default
        self.evaluations, self.final = [default], [default]
        return cost_s

    def _num_affordable(self, cost_s: float, num_workers: int) -> int:
        count = len(self.work.items)
        share = _SEARCH_SHARE * self.seconds * num_workers / (self.least * max(cost_s, 1e-6))
        return count if share >= 1.0 else min(count, max(_FEWEST, int(count * share)))

    def _search(self, workers: Workers, count: int, watch: Watch | None) -> Search:
        """Returns all evaluations on the whole workload."""
        whole = Search(workers, self.knobs, self.goal, watch)
        assert self.default is not None
        whole.put(self.default)
        self.num_searched = count
        if count == len(self.work.items):
            self._explore(whole)
        else:
            with Workers(self.work.first(count), self.num_workers) as fewer:
                part = Search(fewer, self.knobs, self.goal, watch)
                self._explore(part)
            best = self.goal.ranked(part.evaluations)[:_FINALISTS] + front(part.evaluations)[:_FINALISTS]
            whole.run([evaluation.choice for evaluation in best], is_whole=True)
        self.final = whole.evaluations
        self.pick = whole.best
        return whole

    def _explore(self, search: Search) -> None:
        is_part = len(search.workers.work.items) < len(self.work.items)
        try:
            search.explore(_SEARCH_SHARE * self.seconds, self.work.seed, self.least, min(PATIENCE, self.least))
            search.polish(_POLISH_SHARE * self.seconds)
        except KeyboardInterrupt:
            if is_part and search.has(default_choice(self.knobs)):  # then this is all there is
                self.default = search.evaluation(default_choice(self.knobs))
                is_part = False
            raise
        finally:
            self.evaluations, self.is_cut = search.evaluations, search.is_cut
            if not is_part:
                self.final, self.pick = search.evaluations, search.best or self.default

    def _conclude(self, search: Search) -> None:
        best = search.best
        if best is not None:
            self.pick = simplified(search, best)
            self.effects = effects(search, self.pick)
        self.final = search.evaluations
        if self.num_searched == len(self.work.items):
            self.evaluations = search.evaluations

    def choose(self, choice: Choice) -> None:
        """Picks by measurement instead of prediction."""
        self.pick = next(evaluation for evaluation in self.final if evaluation.choice == choice)

    @property
    def gain(self) -> float:
        """In the figure that counts."""
        assert self.default is not None and self.pick is not None
        if self.is_raised and self.capacities is not None:
            before, after = self.capacities
            return after / before - 1.0 if before else 0.0
        return self.goal.gain(self.pick.point, self.default.point)

    @property
    def is_default_fine(self) -> bool:
        """Whether nothing found is worth changing the defaults for."""
        if self.pick is None or self.default is None or self.pick.choice == self.default.choice:
            return True
        if self.goal.meets(self.pick) != self.goal.meets(self.default):
            return False
        other = replace(self.goal, is_throughput=not self.goal.is_throughput)
        return self.gain < FINE and (self.is_raised or other.gain(self.pick.point, self.default.point) < FINE)

    @property
    def candidates(self) -> list[Evaluation]:
        """Worth a real run, the default first: the pick, and the best with another policy."""
        if self.default is None or self.pick is None:
            return []
        policies = {evaluation.choice.get("policy") for evaluation in (self.default, self.pick)}
        others = [each for each in self.goal.ranked(self.final) if each.choice.get("policy") not in policies]
        pick = [] if self.pick.choice == self.default.choice else [self.pick]
        return [self.default, *pick, *others[:1]]
