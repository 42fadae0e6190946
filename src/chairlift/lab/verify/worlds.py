"""The worlds that a request may run in: each varies one thing that must not change a request's bits, some more at
random, and names the event that proves it happened.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits, num_offered
from chairlift.core.params import SamplingParams
from chairlift.core.policies.known import POLICIES
from chairlift.core.request import Request
from chairlift.lab.verify.cases import NO_ADAPTERS, Case, Numbers, requests_of
from chairlift.lab.verify.drive import ScriptedRequest
from chairlift.lab.verify.output import Wanted

_SIZES = (2, 7, 64, 300)
_SHORT_FIRST = "mlfq:quantum=4"  # preempts long prompts for short ones
# Without those that order by attributes, which the requests here lack: they would repeat first come first served.
_FIRST_COME = ("fcfs", "priority", "deadline", "fair-share", "in-turn")
_POLICIES = tuple({"mlfq": _SHORT_FIRST}.get(name, name) for name in POLICIES if name not in _FIRST_COME)
_PREFILLS = ("mixed", "prefill-first", "decode-first", "batched-prefill:size=3", "static")
_BEAMS = 2
_NEIGHBOUR = 1_000_000  # ids from here on are of neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    name: str
    batch: int  # requests that share a step, at most
    proof: str = ""  # what must have happened at least once, as `WorldResult.happened` names it
    step_tokens: int | None = None  # None: as many as the runner takes
    policy: str = "fcfs"
    prefill: str = "mixed"
    has_prefix_cache: bool = False
    is_warm: bool = False  # everything was run before
    preemption: str = "recompute"
    depth: int = 0  # 0: the runner's own
    has_graphs: bool = True
    has_aborts: bool = False
    has_beams: bool = False  # neighbours run beam searches
    is_together: bool = False  # samples of a prompt share its blocks
    is_interrupted: bool = False  # short neighbours arrive and preempt
    is_spread: bool = False  # requests arrive one after another, in any order


def worlds(max_batch: int, depth: int, has_graphs: bool, rng: random.Random) -> list[World]:
    """All axes, the widest batch first, where differences are most likely."""
    sizes = sorted({size for size in _SIZES if size < max_batch} | {max_batch}, reverse=True)
    few, some = min(4, max_batch), min(8, max_batch)
    found = [World(name=f"batch of {size}", batch=size, proof="full steps") for size in sizes]
    found.append(World(name="arrival order", batch=some, is_spread=True))
    for policy in rng.sample(_POLICIES, 2):
        prefill = rng.choice(_PREFILLS)
        found.append(World(name=f"policy {policy}", batch=some, policy=policy, prefill=prefill, is_spread=True))
    return [
        *found,
        World(name="prompts cut", batch=few, step_tokens=few + rng.randrange(3, 9), proof="prompts cut"),
        World(name="prompts cut wide", batch=few, step_tokens=rng.randrange(40, 160), proof="prompts cut"),
        World(name="prefix cache cold", batch=some, has_prefix_cache=True, proof="prefixes found", is_spread=True),
        World(name="prefix cache warm", batch=some, has_prefix_cache=True, is_warm=True, proof="prefixes found"),
        World(name="preempted, computed again", batch=few, is_interrupted=True, policy=_SHORT_FIRST,
              proof="computed again"),
        World(name="preempted, swapped", batch=few, is_interrupted=True, policy=_SHORT_FIRST, preemption="swap",
              proof="swapped"),
        World(name="neighbours aborted", batch=some, has_aborts=True, proof="aborted", is_spread=True),
        World(name="beam searches beside", batch=some, has_beams=True, proof="neighbours forked"),
        World(name="samples together", batch=some, is_together=True, proof="forked"),
        World(name=f"{3 - depth} step{'s' if depth == 1 else ''} in flight", batch=some, depth=3 - depth),
        *([World(name="graphs off", batch=some, has_graphs=False)] if has_graphs else []),
    ]  # fmt: skip


def limits_in(world: World, limits: Limits) -> Limits:
    """The runner's limits, narrowed to the world's."""
    batch = min(world.batch, limits.max_running)
    tokens = min(world.step_tokens or limits.max_step_tokens, limits.max_step_tokens)
    return replace(limits, max_running=batch, max_step_tokens=max(batch, tokens))


def script_of(
    world: World, cases: Sequence[Case], limits: Limits, rng: random.Random, numbers: Numbers = NO_ADAPTERS
) -> tuple[list[ScriptedRequest], Wanted]:
    """The cases among neighbours that fill the batch, and the keys of the cases' requests."""
    num_tokens = max(case.params.max_tokens or 1 for case in cases)
    # Short enough that all are admitted before the first has ended.
    longest = min(max(len(case.prompt) for case in cases), max(4, 2 * limits.max_step_tokens // world.batch))
    order = list(range(len(cases)))
    if world.is_spread:
        rng.shuffle(order)
    groups, wanted = requests_of(cases, order, numbers)
    if not world.is_together:
        groups = [(request,) for request in chain(*groups)]
    script = list(map(ScriptedRequest, groups))
    neighbour = partial(_neighbour, limits=limits, rng=rng, adapters=(0, *numbers.values()))
    least = len(script) if world.has_aborts or world.has_beams else 4 * world.batch if world.is_interrupted else 0
    for i in range(max(least, world.batch - len(script))):
        if world.is_interrupted:
            script.append(ScriptedRequest((neighbour(i, 3, 2),), arrives=2 + rng.randrange(2 * num_tokens)))
        elif world.has_beams:
            script.append(ScriptedRequest(_search(neighbour(_BEAMS * i, longest, num_tokens), limits)))
        else:
            steps = rng.randrange(1, num_tokens) if world.has_aborts and num_tokens > 1 else None
            script.append(ScriptedRequest((neighbour(i, longest, num_tokens),), aborted_after=steps))
    if world.is_spread:
        script = [entry._replace(arrives=rng.randrange(num_tokens)) for entry in script]
    rng.shuffle(script)
    return script, wanted


def again(script: Sequence[ScriptedRequest]) -> list[ScriptedRequest]:
    """The same under other ids: run first to warm the cache."""
    return [
        entry._replace(samples=tuple(replace(r, id=RequestId(r.id + 2 * _NEIGHBOUR)) for r in entry.samples))
        for entry in script
    ]


def _neighbour(
    index: int, longest: int, num_tokens: int, limits: Limits, rng: random.Random, adapters: Sequence[int]
) -> Request:
    """With one of these adapters."""
    length = rng.randrange(longest) + 1
    count = rng.randrange(num_tokens // 2, num_tokens) + 1
    params = SamplingParams(temperature=rng.choice((0.0, 1.0)), max_tokens=count, ignore_eos=True)
    prompt = tuple(rng.randrange(limits.vocab_size) for _ in range(length))
    id, seed = RequestId(_NEIGHBOUR + index), rng.randrange(1000)
    # Without adapters nothing more is drawn: the worlds of a seed stay the same.
    attributes = Attributes(adapter=rng.choice(adapters)) if len(adapters) > 1 else NO_ATTRIBUTES
    return Request(id=id, prompt=prompt, params=params, max_output=count, seed=seed, attributes=attributes)


def _search(lead: Request, limits: Limits) -> tuple[Request, ...]:
    """The members of a beam search."""
    params = replace(lead.params, temperature=0.0, beam_width=_BEAMS)
    params = replace(params, logprobs=num_offered(params, 0, len(lead.prompt), limits))
    return tuple(replace(lead, id=RequestId(lead.id + i), params=params, sample_index=i) for i in range(_BEAMS))
