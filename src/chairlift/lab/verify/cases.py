"""Cases: prompts with their sampling parameters. The same cases give the same requests everywhere."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from chairlift.core.attributes import NO_ATTRIBUTES, Attributes
from chairlift.core.errors import InvalidConfig, InvalidRequest
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits, output_room
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request
from chairlift.lab.verify.output import SampleKey, Wanted

Prompt = str | Sequence[int]
Numbers = Mapping[str, int]  # of adapters, by name
NO_ADAPTERS: Numbers = {}

# Tokens of the built-in prompts: shorter and longer than a block, some with outputs past position 100, and one for
# kernels that take long prompts another way.
_LENGTHS = (12, 90, 40, 101, 5, 94, 33, 300)
_SHARED = (
    "You work at the valley station of a ski lift. Answer the questions of guests in a few plain words, stay friendly, "
    "and say so when you do not know. It is Monday, nine in the morning; the sun shines, it is four degrees below "
    "zero, and all lifts run. "
)
_QUESTIONS = (
    "How long does the ride to the top take, and which way down is the easiest for a child of six years?",
    "Why is snow white although water has no colour at all? Explain it to somebody who has never seen snow.",
    "Write down the rules for waiting in line at a lift, in the order in which a newcomer needs to know them.",
    "What is 17 times 23? Show every step, then check the result by dividing it again.",
    "Name three things that a rope, a wheel and a motor can do together, and one that they cannot.",
    "Translate into Spanish: the last cabin leaves at half past four, please be at the station in time.",
    "def seats(guests, size):\n    # The number of cabins that so many guests need.\n",
    "Tell me a short story about a cable that was afraid of heights and what it did about it.",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt with a fixed seed."""

    prompt: tuple[int, ...]
    params: SamplingParams
    adapter: str = ""  # its name; empty: the base alone


def requests_of(
    cases: Sequence[Case], order: Sequence[int] | None = None, numbers: Numbers = NO_ADAPTERS
) -> tuple[list[tuple[Request, ...]], Wanted]:
    """The samples of each case, with ids from 1 in this order, and the key of each."""
    groups: list[tuple[Request, ...]] = []
    wanted: Wanted = {}
    for index in range(len(cases)) if order is None else order:
        params, first = cases[index].params, 1 + len(wanted)
        assert params.seed is not None
        adapter = cases[index].adapter
        attributes = Attributes(adapter=numbers[adapter]) if adapter else NO_ATTRIBUTES
        groups.append(tuple(
            Request(
                id=RequestId(first + sample), prompt=cases[index].prompt, params=params, seed=params.seed,
                max_output=params.max_tokens or 1, sample_index=sample, stop_ids=frozenset(params.stop_token_ids),
                attributes=attributes,
            )
            for sample in range(params.n)
        ))  # fmt: skip
        wanted |= {request.id: SampleKey(index, request.sample_index) for request in groups[-1]}
    return groups, wanted


def _length(index: int) -> int:
    return _LENGTHS[index % len(_LENGTHS)] + 3 * (index // len(_LENGTHS) % 16)


def prompts_of(encode: Callable[[str], list[int]], count: int) -> list[list[int]]:
    """The built-in prompts; every second begins with the same words, so that there is a prefix to share."""
    prompts = []
    for i in range(count):
        tokens = encode((_SHARED if i % 2 else "") + _QUESTIONS[i % len(_QUESTIONS)] + f" ({i + 1}) ")
        prompts.append((tokens * -(-_length(i) // max(1, len(tokens))))[: _length(i)])
    return prompts


def random_prompts(vocab_size: int, count: int, seed: int) -> list[list[int]]:
    """The same lengths and the same sharing, of random tokens: for random weights."""
    rng = random.Random(f"prompts {seed}")
    shared = [rng.randrange(vocab_size) for _ in range(40)]
    prompts = []
    for i in range(count):
        own = [rng.randrange(vocab_size) for _ in range(_length(i))]
        prompts.append((shared + own if i % 2 else own)[: _length(i)])
    return prompts


def greedy(prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Case]:
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True, seed=0)
    return [Case(tuple(prompt), params) for prompt in prompts]


def mixed(prompts: Sequence[Sequence[int]], num_tokens: int, seed: int) -> list[Case]:
    """Of every four, two greedy ones, one with random sampling and one with two samples."""
    plain = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    kinds = (
        plain,
        replace(plain, temperature=0.8, top_p=0.95, top_k=40),
        plain,
        replace(plain, temperature=1.0, n=2),
    )
    return [
        Case(tuple(prompt), replace(kinds[i % len(kinds)], seed=1000 * seed + i)) for i, prompt in enumerate(prompts)
    ]


def fitted(prompts: Sequence[Sequence[int]], num_tokens: int, max_model_len: int) -> list[list[int]]:
    """Built-in prompts, cut to the room that the context leaves."""
    most = max_model_len - num_tokens
    if most < 1:
        raise InvalidConfig(f"--tokens {num_tokens} leaves no room for a prompt in the context of {max_model_len}")
    return [list(prompt[:most]) for prompt in prompts]


def check(cases: Sequence[Case], limits: Limits) -> None:
    """Refuses cases that can never run, by number."""
    for index, case in enumerate(cases):
        try:
            output_room(case.prompt, case.params, limits)
        except InvalidRequest as error:
            raise InvalidConfig(f"prompt {index + 1}: {error}") from error
