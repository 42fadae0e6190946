"""A whole small world: an engine that is driven by a script of arrivals and aborts, on any runner, with any faults.

Invariants are checked after all that happens. At the end every block must be free, and every request that was not
aborted must have exactly the tokens it would have had alone.

A runner is a file beside this one with the two methods of `RunnerKind`. A fault is called once the engine is made, and
sets what it needs: a hook of the runner, `after_step`, or another engine.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

from chairlift.core.engine import Engine
from chairlift.core.events import Admitted, Event, Finished, Preempted, PromptScored, RuleFailed, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.preemption import Preemption
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Policy
from chairlift.core.ports import Runner
from chairlift.core.request import FinishReason, Request
from chairlift.core.scheduling.scheduler import Scheduler
from fakes.clocks import CountingClock
from fakes.engines import Checked
from fakes.ledger import LedgerRunner, expected, expected_beams

Arrivals = dict[int, list[tuple[Request, ...]]]  # by step
Tokens = dict[RequestId, list[int]]
Happened = Counter[type[Event] | str]


class RunnerKind(Protocol):
    def make(self, world: "World") -> Runner: ...

    def alone(self, arrivals: Arrivals, limits: Limits) -> Tokens:
        """What each request gets with the machine to itself."""
        ...


class Ledger:
    def make(self, world: "World") -> Runner:
        limits, num_host_blocks = world.limits, world.preemption.num_host_blocks
        return LedgerRunner(
            limits.num_blocks, limits.block_size, limits.vocab_size, world.depth, num_host_blocks,
            limits.pages.kinds,
        )  # fmt: skip

    def alone(self, arrivals: Arrivals, limits: Limits) -> Tokens:
        tokens: Tokens = {}
        for samples in (samples for groups in arrivals.values() for samples in groups):
            if samples[0].params.beam_width:  # members beyond the n best answers say nothing
                best = expected_beams(samples[0], limits.vocab_size)
                tokens |= {request.id: answer for request, answer in zip(samples, best, strict=False)}
            else:
                tokens |= {request.id: expected(request, limits.vocab_size) for request in samples}
        return tokens


class World:
    def __init__(
        self, limits: Limits, runner: RunnerKind = Ledger(), faults: Sequence["Fault"] = (), *,  # noqa: B008
        arrivals: Arrivals | None = None, aborts: dict[int, list[RequestId]] | None = None, has_moved: bool = False,
        depth: int = 1, may_fail: bool = False, policy: Policy | None = None, preemption: Preemption | None = None,
        has_prefix_index: bool = True, about: dict[str, str] | None = None, **rules: Any,
    ) -> None:  # fmt: skip
        """`has_moved`: requests that are aborted go on elsewhere. `may_fail`: the rules may. `about`: what was drawn.
        `rules`: the other ones of a scheduler."""
        self.limits, self.depth, self.has_moved, self.may_fail = limits, depth, has_moved, may_fail
        self.arrivals, self.aborts, self.about = arrivals or {}, aborts or {}, about or {}
        self.preemption, self.has_prefix_index = preemption or Preemption(), has_prefix_index
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()  # what runners and faults count
        self.steps_may_fail = False  # a fault says so; else no request ends by an error
        self.after_step: Callable[[int], None] = lambda step: None
        self.scheduler = Scheduler(
            limits, policy or Fcfs(), preemption=self.preemption, has_prefix_index=has_prefix_index, **rules
        )
        self.others: list[Scheduler] = []  # of further engines, which must hold nothing at the end either
        self._kind = runner
        self.runner: Any = runner.make(self)
        self.engine: Engine = Checked(self.scheduler, self.runner, CountingClock())
        for fault in faults:
            fault(self)

    def run(self) -> Self:
        try:
            self.drive()._check_outputs()
        except AssertionError as error:
            error.add_note(f"the world: {self.about or self.limits}")
            raise
        return self

    def drive(self, max_steps: int = 5000) -> Self:
        """As `run`, with no look at tokens."""
        step, last = 0, max([0, *self.arrivals, *self.aborts])
        while step <= last or self.engine.has_work:
            assert step < max_steps, "the world does not end"
            for samples in self.arrivals.get(step, ()):
                self.engine.add(samples)
            for request in self.aborts.get(step, ()):
                self.engine.abort(request, self.has_moved)
            self.events += self.engine.step()
            self.after_step(step)
            step += 1
        self.check_end()
        return self

    def check_end(self) -> None:
        for scheduler in (self.scheduler, *self.others):
            assert scheduler.pool.num_free == self.limits.num_blocks, "blocks leaked"
            scheduler.tables.begin()
            host = scheduler.tables.host
            assert host.num_free == host.num_blocks, "host blocks leaked"
        assert self.may_fail or not any(isinstance(event, RuleFailed) for event in self.events), "a rule failed"
        errors = [e for e in self.events if isinstance(e, Finished) and e.finish is FinishReason.ERROR]
        assert self.steps_may_fail or not errors, f"requests failed: {errors}"

    def outputs(self) -> Tokens:
        tokens: Tokens = {}
        for event in self.events:
            if isinstance(event, Token):
                tokens.setdefault(event.request, []).append(event.token)
        return tokens

    @property
    def happened(self) -> Happened:
        """How often each kind of event came, and all that was counted. "hit": admitted with cached tokens; "swap":
        preempted with its blocks moved out; "more": a token after another of the same step."""
        happened: Happened = Counter(self.counts)
        last: dict[RequestId, float] = {}
        for event in self.events:
            happened[type(event)] += 1
            happened["hit"] += isinstance(event, Admitted) and event.num_cached > 0
            happened["swap"] += isinstance(event, Preempted) and event.is_swapped
            if isinstance(event, Token):
                happened["more"] += last.get(event.request) == event.at
                last[event.request] = event.at
        return happened

    def _check_outputs(self) -> None:
        outputs = self.outputs()
        scored = Counter(e.request for e in self.events if isinstance(e, PromptScored))
        assert all(count == 1 for count in scored.values()), f"prompts scored more than once: {scored}"
        gone = {e.request for e in self.events if isinstance(e, Finished) and e.finish is not FinishReason.LENGTH}
        wanted = self._kind.alone(self.arrivals, self.limits)
        for request in (one for groups in self.arrivals.values() for samples in groups for one in samples):
            got, want = outputs.get(request.id, []), wanted.get(request.id, [])
            if request.id in gone:
                assert got == want[: len(got)], f"request {request.id} got other tokens before its end"
            else:
                assert got == want, f"request {request.id} got {got}, alone it gets {want}"
                assert (request.id in scored) == (request.params.prompt_logprobs is not None)


Fault = Callable[[World], None]
