"""A random world whose engine is thrown away at random moments; a new one goes on with what the old one told.

That is tokens, scored prompts and ends: nothing else of an engine that dies is known.
"""

import random
from dataclasses import replace

from chairlift.core.events import Finished, PromptScored, Token
from chairlift.core.request import Request, resume
from fakes.world import World, random_world

_MAX_CUTS = 12  # a long prompt in small steps would never be computed


class CutWorld:
    def __init__(self, seed: int, share: float, drafts: bool = False) -> None:
        self.world = random_world(seed, drafts=drafts)
        self.world.after_step = self._maybe_cut
        self.num_resumed = 0  # requests that went on after a token
        self._num_cuts = 0
        self._seed = seed
        self._has_drafts = drafts
        self._share = share  # of the steps after which the engine is lost
        self._rng = random.Random(-seed)

    def run(self) -> None:
        self.world.run()

    def _maybe_cut(self, step: int) -> None:
        if self._num_cuts < _MAX_CUTS and self._rng.random() < self._share:
            self._num_cuts += 1
            world, fresh = self.world, random_world(self._seed, drafts=self._has_drafts)
            world.scheduler, world.runner, world.engine = fresh.scheduler, fresh.runner, fresh.engine
            arrived = [samples for at, groups in world.arrivals.items() if at <= step for samples in groups]
            told = _Told(world)
            for samples in arrived:
                for group in told.left(samples):
                    world.engine.add(group)
                    self.num_resumed += bool(group[0].output)


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
