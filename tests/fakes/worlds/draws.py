"""Worlds that are drawn: a seed always draws the same one, with whatever is wrong in it.

They are small on purpose: blocks of 1 to 4 tokens, pools of 3 to 16 blocks, so that everything collides.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.memory.pages import Fixed, Group
from chairlift.core.memory.preemption import MODES, Preemption
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.policy import Prefill
from chairlift.core.prefill import WaitAfterPreempt
from chairlift.core.request import Request
from fakes.drafts import RandomDrafter
from fakes.requests import make_samples, make_search
from fakes.worlds.faults import Cuts, often_full
from fakes.worlds.moves import Moves
from fakes.worlds.world import Arrivals, Fault, World


def random_world(
    seed: int, policy: str | None = None, prefill: str | None = None, admission: str | None = None,
    drafts: bool = False, windows: bool = False, states: bool = False, adapters: random.Random | None = None,
    **more: Any,
) -> World:  # fmt: skip
    """With drafts it is the same world, and its tokens are guessed. With windows it is another, some of whose layers
    have one; so it is with states. `adapters` draws an adapter for each prompt, of more than there are slots.
    `more`: of a `World`."""
    rng = random.Random(seed)
    limits = _random_limits(rng, max_drafts=1 + seed % 5 if drafts else 0)
    limits = with_windows(limits, rng) if windows else limits
    limits = with_states(limits, rng) if states else limits
    preemption = Preemption(
        mode=rng.choice(MODES),
        num_host_blocks=rng.choice([0, 2, 20]) * limits.pages.per_block,
        block_copy_s=0.5,
        step_times=((1, 2.0), (2, 2.0 + rng.choice([0.1, 1.0]))),
    )
    policy = policy or _choose_policy(rng, seed)
    prefill = prefill or rng.choice(sorted(PREFILLS))
    admission = admission or rng.choice(sorted(ADMISSIONS))
    rule: Prefill = PREFILLS[prefill](**_parameters(rng, prefill))
    depth = rng.choice([1, 2])
    about = {
        "seed": str(seed),
        "policy": policy,
        "prefill": prefill,
        "admission": admission,
        "preemption": preemption.mode,
        "block_size": str(limits.block_size),
    }
    rules: dict[str, Any] = {
        "depth": 1 + seed % 3 if drafts else depth,  # requests are preempted while their drafts are in flight
        "has_prefix_index": rng.random() < 0.8,
        "policy": POLICIES[policy](**_parameters(rng, policy)),
        "prefill": WaitAfterPreempt(rule) if rng.random() < 0.2 else rule,
        "admission": ADMISSIONS[admission](),
        "drafter": RandomDrafter(seed, limits.vocab_size) if drafts else None,
    }
    arrivals, aborts = _random_script(rng, limits)
    if adapters is not None:
        limits, arrivals = _with_adapters(limits, arrivals, adapters)
    return World(
        limits, arrivals=arrivals, aborts=aborts, has_moved=bool(seed % 2), preemption=preemption, about=about,
        **rules | more,
    )  # fmt: skip


def full_world(seed: int, least: int = 2, share: float = 0.25, **more: Any) -> World:
    """A random world whose runner's memory is too small now and then."""
    rng = random.Random(-seed)
    return random_world(seed, depth=rng.randint(1, 3), faults=[often_full(rng, least, share)], **more)


def adapter_world(seed: int, is_full: bool = False, faults: Sequence[Fault] = (), **more: Any) -> World:
    """A random world whose requests have adapters. With `is_full` some steps do not fit the runner's memory."""
    rng = random.Random(f"adapters {seed}")
    faults = [*faults, often_full(rng)] if is_full else faults
    return random_world(seed, drafts=seed % 5 == 0, adapters=rng, faults=faults, **more)


def cut_world(seed: int, share: float, **more: Any) -> World:
    """A random world whose engine is lost at random moments; `share`: of the steps."""
    draw = partial(random_world, seed, **more)
    return draw(faults=[Cuts(draw, share, random.Random(-seed))])


def moved_world(seed: int, share: float, draw: Callable[..., World] = random_world, **more: Any) -> World:
    """A drawn world of several engines, between which requests move; `share`: of the live ones, in a step."""
    draw, rng = partial(draw, seed, **more), random.Random(-seed)
    return draw(faults=[Moves(draw, rng, lambda _: rng.random() < share)])


def mixed_world(seed: int, draw: Callable[..., World] = random_world, **more: Any) -> World:
    """A drawn world with states, every second with windows too, every third with drafts."""
    return draw(seed, states=True, windows=seed % 2 == 1, drafts=seed % 3 == 0, **more)


def any_mixed_world(seed: int) -> World:
    """Of four such worlds one has requests that move, and one steps that do not fit the runner's memory."""
    turn = seed // 6  # all mixtures have their turn in six seeds
    if turn % 4 == 0:
        return mixed_world(seed, moved_world, share=0.1 + 0.2 * (turn % 8 == 0))
    return mixed_world(seed, full_world if turn % 4 == 1 else random_world)


def _random_limits(rng: random.Random, max_drafts: int) -> Limits:
    block_size = rng.choice([1, 2, 3, 4, 16])
    num_blocks = rng.randint(3, 16) if block_size < 16 else rng.randint(2, 4)
    max_running = rng.randint(1, 6)
    return Limits(
        vocab_size=rng.choice([3, 7, 50]),
        max_model_len=block_size * num_blocks,
        block_size=block_size,
        num_blocks=num_blocks,
        max_running=max_running,
        max_step_tokens=max_running + rng.randint(0, 8),
        max_step_prompts=rng.choice([0, 0, 1, 2]),
        max_drafts=max_drafts,
    )


def _random_script(rng: random.Random, limits: Limits) -> tuple[Arrivals, dict[int, list[RequestId]]]:
    """Arrivals and aborts."""
    arrivals: Arrivals = {}
    aborts: dict[int, list[RequestId]] = {}
    shared = [rng.randrange(limits.vocab_size) for _ in range(limits.max_model_len)]
    next_id = 1
    for _ in range(rng.randint(1, 12)):
        samples = _random_samples(rng, limits, shared, next_id)
        step = rng.randint(0, 10)
        arrivals.setdefault(step, []).append(samples)
        for request in samples:
            if rng.random() < 0.12:
                aborts.setdefault(step + rng.randint(0, 8), []).append(request.id)
        next_id += len(samples)
    return arrivals, aborts


def with_states(limits: Limits, rng: random.Random) -> Limits:
    """Pages of states on top of such a pool, some more for checkpoints."""
    fixed = Group("fixed", rng.choice([1, 1, 2, 3]), limits.block_size * rng.choice([1, 2, 3]), rng.choice([1, 1, 2]))
    limits = replace(limits, groups=(*limits.groups, fixed))
    longest = max(2, min(limits.max_model_len, limits.num_blocks * limits.block_size))
    (kind,) = (each for each in limits.pages.kinds if isinstance(each, Fixed))
    num_own = kind.num_in_prompt(1) * rng.randint(1, 3) + rng.randint(0, 8)
    num_blocks = max(limits.num_blocks + num_own, limits.pages.num_in_prompt(longest))
    return replace(limits, num_blocks=num_blocks, max_model_len=longest)


def _with_adapters(limits: Limits, arrivals: Arrivals, rng: random.Random) -> tuple[Limits, Arrivals]:
    limits = replace(limits, num_adapter_slots=rng.randint(1, 3))
    adapters = [0, *range(1, rng.randint(2, 6))]
    return limits, {
        step: [_adapted(samples, rng.choice(adapters)) for samples in groups] for step, groups in arrivals.items()
    }


def _adapted(samples: tuple[Request, ...], adapter: int) -> tuple[Request, ...]:
    return tuple(replace(each, attributes=replace(each.attributes, adapter=adapter)) for each in samples)


def with_windows(limits: Limits, rng: random.Random) -> Limits:
    """As small a pool, for texts that are often longer than the window."""
    window, num_groups = rng.choice([1, 2, 3, 5, 8, 16]), rng.choice([1, 1, 2, 5])
    num_blocks = limits.num_blocks + num_groups * rng.randint(2, 8)
    limits = replace(limits, groups=(Group("window", num_groups, window),), num_blocks=num_blocks)
    longest = max(2, min(limits.max_model_len, limits.max_pool_tokens))
    if limits.max_pool_tokens < longest:
        limits = replace(limits, num_blocks=limits.pages.num_in_prompt(longest))
    return replace(limits, max_model_len=longest)


# Stays as it is: a seed draws the same policy whatever is registered later.
_FIRST_POLICIES = (
    "deadline", "fair-share", "fcfs", "longest-first", "longest-prefix", "mlfq", "priority", "shortest-first",
    "similar-length",
)  # fmt: skip


def _choose_policy(rng: random.Random, seed: int) -> str:
    """A policy that is registered later takes a tenth of the seeds by a draw of its own, and moves no other seed."""
    chosen = rng.choice(_FIRST_POLICIES)
    for name in sorted(POLICIES.keys() - set(_FIRST_POLICIES)):
        if random.Random(f"{seed} {name}").random() < 0.1:
            chosen = name
    return chosen


# As small as the worlds, so that the rules have something to decide; half of them keep their defaults.
PARAMETERS: dict[str, dict[str, list[Any]]] = {
    "fcfs": {"victim": ["newest", "shortest"]},
    "shortest-first": {"by": ["output", "prompt", "total"]},
    "longest-first": {"by": ["output", "prompt", "total"]},
    "similar-length": {"by": ["output", "prompt", "total"], "patience": [0, 1, 3]},
    "priority": {"aging": [0.0, 0.1, 2.0]},
    "deadline": {"default": [0.0, 20.0]},
    "fair-share": {"prompt": [0.0, 1.0], "output": [1.0, 3.0]},
    "in-turn": {"prompt": [0.0, 1.0], "output": [1.0, 3.0]},
    "mlfq": {"levels": [1, 3], "quantum": [1, 3, 6], "rate": [1.0, 1.5], "starve": [1.0, 7.0, 1e9]},
    "longest-prefix": {"window": [1, 3], "patience": [0, 1, 3]},
    "timed": {"share": [0.0, 1.0, 8.0], "least": [1, 3]},
    "decode-first": {"free": [0.0, 0.5, 1.0]},
    "delay": {"factor": [0.0, 2.0, 20.0], "exclusive": [False, True]},
    "batched-prefill": {"size": [1, 2, 3]},
}


def _parameters(rng: random.Random, rule: str) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {}
    return {name: rng.choice(values) for name, values in PARAMETERS.get(rule, {}).items()}


def _can_search(limits: Limits, width: int, num_tokens: int) -> bool:
    """As `num_offered` has it."""
    pages = limits.pages
    return (width - 1) * pages.num_decoding(num_tokens) + pages.num_in_prompt(num_tokens) <= limits.num_blocks


def _random_samples(rng: random.Random, limits: Limits, shared: list[int], first_id: int) -> tuple[Request, ...]:
    room = limits.max_model_len
    length = rng.randint(1, room - 1)
    prompt = shared[:length] if rng.random() < 0.6 else [rng.randrange(limits.vocab_size) for _ in range(length)]
    max_output = rng.randint(1, min(room - length, 12))
    more: dict[str, Any] = {
        "cache_salt": rng.choice(["", "", "b"]) + rng.choice(["", "", "a"]),
        "seed": rng.randrange(99),
        "user": rng.choice(["", "ann", "bob"]),
        "priority": rng.randint(0, 2),
        "deadline_s": rng.choice([None, 5.0, 50.0]),
    }
    if rng.random() < 0.3:
        more["stop_ids"] = frozenset([rng.randrange(limits.vocab_size)])
    width = rng.randint(1, min(3, limits.max_running))
    has_tokens = width * 3 <= limits.vocab_size
    if rng.random() < 0.15 and has_tokens and _can_search(limits, width, length + max_output):
        return make_search(first_id, prompt, width, max_output, n=rng.randint(1, width), **more)
    if rng.random() < 0.2:
        more["prompt_logprobs"] = 0
    if "stop_ids" in more:
        more["min_tokens"] = rng.randint(0, max_output)
    return make_samples(first_id, prompt, rng.randint(1, min(3, limits.max_running)), max_output, **more)
