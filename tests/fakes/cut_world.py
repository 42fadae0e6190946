"""A random world whose engine is thrown away at random moments; a new one goes on with what the old one told.

That is tokens, scored prompts and ends: nothing else of an engine that dies is known.
"""

import random
from dataclasses import replace

from chairlift.core.events import Finished, PromptScored, Token
from chairlift.core.request import Request
from chairlift.core.scheduling.resume import resume
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
            for samples in arrived:
                for group in self._left(world, samples):
                    world.engine.add(group)
                    self.num_resumed += bool(group[0].output)

    def _left(self, world: World, samples: tuple[Request, ...]) -> list[tuple[Request, ...]]:
        events = [event for event in world.events if event.request in {request.id for request in samples}]
        ended = {e.request for e in events if isinstance(e, Finished) or (isinstance(e, Token) and e.finish)}
        if samples[0].params.beam_width:  # has told nothing before its end
            return [] if ended else [samples]
        if any(isinstance(event, PromptScored) for event in events):
            lead, *others = samples
            samples = replace(lead, params=replace(lead.params, prompt_logprobs=None)), *others
        told = world.outputs()
        return resume(samples, {r.sample_index: told.get(r.id, []) for r in samples if r.id not in ended})
