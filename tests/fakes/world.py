"""A whole small world: an engine on the ledger runner, driven by a script of arrivals and aborts.

Every step checks the invariants; at the end every request that was not aborted must have exactly the tokens it would
have had alone, and every block must be free.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from chairlift.core.admission import PromptFits
from chairlift.core.engine import Engine
from chairlift.core.events import Event, Finished, PromptScored, RuleFailed, Token
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.policies.known import ADMISSIONS, POLICIES, PREFILLS
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.policy import Admission, Policy, Prefill
from chairlift.core.ports import Drafter
from chairlift.core.prefill import Mixed, WaitAfterPreempt
from chairlift.core.request import FinishReason, Request
from chairlift.core.scheduling.invariants import check
from chairlift.core.scheduling.preemption import MODES, Preemption
from chairlift.core.scheduling.scheduler import Scheduler
from fakes.clocks import CountingClock
from fakes.drafts import RandomDrafter
from fakes.ledger import LedgerRunner, expected, expected_beams
from fakes.requests import make_samples, make_search


@dataclass
class World:
    limits: Limits
    depth: int = 1
    has_prefix_index: bool = True
    policy: Policy = field(default_factory=Fcfs)
    prefill: Prefill = field(default_factory=Mixed)
    admission: Admission = field(default_factory=PromptFits)
    preemption: Preemption = field(default_factory=Preemption)
    arrivals: dict[int, list[tuple[Request, ...]]] = field(default_factory=dict)  # by step
    aborts: dict[int, list[RequestId]] = field(default_factory=dict)
    has_moved: bool = False  # those that are aborted go on elsewhere
    events: list[Event] = field(default_factory=list)
    after_step: Callable[[int], None] = lambda step: None
    may_fail: bool = False  # the rules
    drafter: Drafter | None = None
    about: dict[str, str] = field(default_factory=dict)  # what was drawn, for counting

    def __post_init__(self) -> None:
        limits = self.limits
        self.scheduler = Scheduler(
            limits, self.policy, self.prefill, self.admission, self.preemption, self.has_prefix_index, self.drafter
        )
        self.runner = LedgerRunner(
            limits.num_blocks, limits.block_size, limits.vocab_size, self.depth, self.preemption.num_host_blocks,
            limits.window, limits.num_window_groups,
        )  # fmt: skip
        self.engine = Engine(self.scheduler, self.runner, CountingClock())

    def run(self, max_steps: int = 5000) -> None:
        step, last = 0, max([0, *self.arrivals, *self.aborts])
        while step <= last or self.engine.has_work:
            assert step < max_steps, "the world does not end"
            for samples in self.arrivals.get(step, ()):
                self.engine.add(samples)
            for request in self.aborts.get(step, ()):
                self.engine.abort(request, self.has_moved)
                check(self.scheduler)
            self.events += self.engine.step()
            check(self.scheduler)
            self.after_step(step)
            step += 1
        self._check_outputs()
        assert self.scheduler.pool.num_free == self.limits.num_blocks, "blocks leaked"
        assert self.may_fail or not any(isinstance(event, RuleFailed) for event in self.events), "a rule failed"

    def outputs(self) -> dict[RequestId, list[int]]:
        tokens: dict[RequestId, list[int]] = {}
        for event in self.events:
            if isinstance(event, Token):
                tokens.setdefault(event.request, []).append(event.token)
        return tokens

    def _check_outputs(self) -> None:
        outputs = self.outputs()
        scored = Counter(e.request for e in self.events if isinstance(e, PromptScored))
        assert all(count == 1 for count in scored.values()), f"prompts scored more than once: {scored}"
        gone = {e.request for e in self.events if isinstance(e, Finished) and e.finish is not FinishReason.LENGTH}
        for samples in (samples for groups in self.arrivals.values() for samples in groups):
            for request, want in zip(samples, self._wanted(samples), strict=True):
                got = outputs.get(request.id, [])
                if request.id in gone:
                    assert got == want[: len(got)], f"request {request.id} got other tokens before its end"
                else:
                    assert got == want, f"request {request.id} got {got}, alone it gets {want}"
                    assert (request.id in scored) == (request.params.prompt_logprobs is not None)

    def _wanted(self, samples: tuple[Request, ...]) -> list[list[int]]:
        vocab_size = self.limits.vocab_size
        if samples[0].params.beam_width:
            best = expected_beams(samples[0], vocab_size)
            return best + [[]] * (len(samples) - len(best))  # members beyond the n best answers say nothing
        return [expected(request, vocab_size) for request in samples]


def random_world(
    seed: int, policy: str | None = None, prefill: str | None = None, admission: str | None = None,
    drafts: bool = False, windows: bool = False,
) -> World:  # fmt: skip
    """Small on purpose: blocks of 1 to 4 tokens, pools of 3 to 16 blocks, so that everything collides. With drafts it
    is the same world, and its tokens are guessed. With windows it is another, some of whose layers have one."""
    rng = random.Random(seed)
    block_size = rng.choice([1, 2, 3, 4, 16])
    num_blocks = rng.randint(3, 16) if block_size < 16 else rng.randint(2, 4)
    max_running = rng.randint(1, 6)
    limits = Limits(
        vocab_size=rng.choice([3, 7, 50]),
        max_model_len=block_size * num_blocks,
        block_size=block_size,
        num_blocks=num_blocks,
        max_running=max_running,
        max_step_tokens=max_running + rng.randint(0, 8),
        max_step_prompts=rng.choice([0, 0, 1, 2]),
        max_drafts=1 + seed % 5 if drafts else 0,
    )
    limits = with_windows(limits, rng) if windows else limits
    preemption = Preemption(
        mode=rng.choice(MODES),
        num_host_blocks=rng.choice([0, 2, 20]) * limits.windows.pages_per_block,
        block_copy_s=0.5,
        step_times=((1, 2.0), (2, 2.0 + rng.choice([0.1, 1.0]))),
    )
    policy = policy or _choose_policy(rng, seed)
    prefill = prefill or rng.choice(sorted(PREFILLS))
    admission = admission or rng.choice(sorted(ADMISSIONS))
    rule: Prefill = PREFILLS[prefill](**_parameters(rng, prefill))
    depth = rng.choice([1, 2])
    world = World(
        limits,
        depth=1 + seed % 3 if drafts else depth,  # requests are preempted while their drafts are in flight
        has_prefix_index=rng.random() < 0.8,
        policy=POLICIES[policy](**_parameters(rng, policy)),
        prefill=WaitAfterPreempt(rule) if rng.random() < 0.2 else rule,
        admission=ADMISSIONS[admission](),
        preemption=preemption,
        drafter=RandomDrafter(seed, limits.vocab_size) if drafts else None,
        has_moved=bool(seed % 2),
    )
    world.about = {
        "policy": policy,
        "prefill": prefill,
        "admission": admission,
        "preemption": preemption.mode,
        "block_size": str(block_size),
    }
    shared = [rng.randrange(limits.vocab_size) for _ in range(limits.max_model_len)]
    next_id = 1
    for _ in range(rng.randint(1, 12)):
        samples = _random_samples(rng, limits, shared, next_id)
        step = rng.randint(0, 10)
        world.arrivals.setdefault(step, []).append(samples)
        for request in samples:
            if rng.random() < 0.12:
                world.aborts.setdefault(step + rng.randint(0, 8), []).append(request.id)
        next_id += len(samples)
    return world


def with_windows(limits: Limits, rng: random.Random) -> Limits:
    """As small a pool, for texts that are often longer than the window."""
    window, num_groups = rng.choice([1, 2, 3, 5, 8, 16]), rng.choice([1, 1, 2, 5])
    num_blocks = limits.num_blocks + num_groups * rng.randint(2, 8)
    limits = replace(limits, window=window, num_window_groups=num_groups, num_blocks=num_blocks)
    longest = max(2, min(limits.max_model_len, limits.max_pool_tokens))
    if limits.max_pool_tokens < longest:
        limits = replace(limits, num_blocks=limits.windows.num_prompt_pages(longest))
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
    windows = limits.windows
    return (width - 1) * windows.num_pages(num_tokens) + windows.num_prompt_pages(num_tokens) <= limits.num_blocks


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
