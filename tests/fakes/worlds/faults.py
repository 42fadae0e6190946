"""What goes wrong in a world, or comes in its way: steps that fail or do not fit, and engines that are lost."""

import random
from collections.abc import Callable
from dataclasses import replace

from chairlift.core.events import Finished, PromptScored, Token
from chairlift.core.plan import StepPlan
from chairlift.core.request import Request, resume
from fakes.worlds.world import Fault, World


def failing(*steps: int) -> Fault:
    """These steps of the ledger fail."""

    def join(world: World) -> None:
        world.steps_may_fail = True
        world.runner.fail_steps = frozenset(steps)

    return join


def full(is_too_large: Callable[[StepPlan], bool]) -> Fault:
    """Such steps do not fit the ledger's memory."""

    def join(world: World) -> None:
        world.steps_may_fail = True
        world.runner.is_too_large = is_too_large

    return join


def often_full(rng: random.Random, least: int = 2, share: float = 0.25) -> Fault:
    """A share of the steps of at least so many tokens does not fit."""
    return full(lambda plan: plan.num_tokens >= least and rng.random() < share)


class Cuts:
    """The engine is thrown away at random moments, and a new one goes on with what the old one told.

    That is tokens, scored prompts and ends: nothing else of an engine that dies is known.
    """

    MAX = 12  # a long prompt in small steps would never be computed

    def __init__(self, draw: Callable[[], World], share: float, rng: random.Random) -> None:
        """`draw` makes the world of each further engine; `share`: of the steps after which the engine is lost."""
        self._draw, self._share, self._rng = draw, share, rng
        self._num_cuts = 0

    def __call__(self, world: World) -> None:
        self._world = world
        world.after_step = self._after_step

    def _after_step(self, step: int) -> None:
        if self._num_cuts < self.MAX and self._rng.random() < self._share:
            self._num_cuts += 1
            self._cut(step)

    def _cut(self, step: int) -> None:
        world, fresh = self._world, self._draw()
        world.scheduler, world.runner, world.engine = fresh.scheduler, fresh.runner, fresh.engine
        told = _Told(world)
        for samples in (samples for at, groups in world.arrivals.items() if at <= step for samples in groups):
            for group in told.left(samples):
                world.engine.add(group)
                world.counts["resumed"] += bool(group[0].output)  # after a token


class _Told:
    """What engines have told so far."""

    def __init__(self, world: World) -> None:
        self._outputs = world.outputs()
        self._ended = {
            e.request for e in world.events if isinstance(e, Finished) or (isinstance(e, Token) and e.finish)
        }
        self._scored = {e.request for e in world.events if isinstance(e, PromptScored)}

    def left(self, samples: tuple[Request, ...]) -> list[tuple[Request, ...]]:
        ids = {request.id for request in samples}
        if samples[0].params.beam_width:  # has told nothing before its end
            return [samples] if ids.isdisjoint(self._ended) else []
        if not ids.isdisjoint(self._scored):
            lead, *others = samples
            samples = replace(lead, params=replace(lead.params, prompt_logprobs=None)), *others
        going = [request for request in samples if request.id not in self._ended]
        return resume(samples, {request.sample_index: self._outputs.get(request.id, []) for request in going})
