"""Answers that are held to a shape, on a tiny real decoder: whatever happens to a request, its tokens are those it gets
alone, and what it says has the shape."""

import random
from dataclasses import replace
from functools import cache

import pytest
import torch

from chairlift.core.events import Preempted
from chairlift.core.ids import RequestId
from chairlift.core.memory.preemption import Preemption
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request
from chairlift.models.spec import uniform_model
from chairlift.text.structured.vocabulary import grammar_vocabulary
from fakes.drafts import ToldDrafter
from fakes.shapes import SHAPES, has_shape
from fakes.small_tokenizer import small_tokenizer
from fakes.worlds.models import SHAPE, TinyModel, limits_of
from fakes.worlds.world import Arrivals, Tokens, World

TOKENIZER = small_tokenizer()
EOS = TOKENIZER.eos_id or 0
CONFIG = uniform_model(**SHAPE | {"vocab_size": TOKENIZER.vocab_size + 6, "max_model_len": 192})


@cache
def model(max_followed: int = 4) -> TinyModel:
    vocabulary = grammar_vocabulary(TOKENIZER, CONFIG.vocab_size, [EOS])
    like = None if max_followed == 4 else model()
    return TinyModel(torch.float64, config=CONFIG, vocabulary=vocabulary, max_followed=max_followed, like=like)


def params(rng: random.Random, index: int) -> SamplingParams:
    return SamplingParams(
        structured_outputs=[*SHAPES, None][index % (len(SHAPES) + 1)],
        temperature=rng.choice([0.0, 1.0]),
        top_p=rng.choice([1.0, 0.8]),
        repetition_penalty=rng.choice([1.0, 1.3]),
        logit_bias=rng.choice([{}, {EOS: 5.0}]),
        logprobs=rng.choice([None, 2]),
    )


@cache
def crowd_and_tokens_alone() -> tuple[Arrivals, Tokens]:
    rng, arrivals = random.Random(6), dict[int, list[tuple[Request, ...]]]()
    for index in range(20):
        prompt = tuple(rng.randrange(2, 200) for _ in range(rng.randint(1, 9)))
        asked = Request(
            id=RequestId(10 * index), prompt=prompt, params=params(rng, index), max_output=100, seed=index,
            stop_ids=frozenset([EOS]),
        )  # fmt: skip
        samples = [replace(asked, id=RequestId(10 * index + i), sample_index=i) for i in range(rng.choice([1, 1, 3]))]
        arrivals[3 * index] = [tuple(samples)]
    return arrivals, model().alone(arrivals)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "preemption", [Preemption(), Preemption(mode="swap", num_host_blocks=400)], ids=lambda p: p.mode
)
@pytest.mark.parametrize("has_drafts", [False, True], ids=["one token a step", "drafts"])
def test_preempted_and_drafted_answers_are_those_that_a_request_gets_alone(
    preemption: Preemption, has_drafts: bool
) -> None:
    arrivals, alone = crowd_and_tokens_alone()
    limits, drafter = limits_of(CONFIG, 28, 4, 6, 17), None
    if has_drafts:
        limits, drafter = replace(limits, max_drafts=4), ToldDrafter(alone, CONFIG.vocab_size)
    # Fewer answers are followed than run: matchers are made again from the tokens in most steps.
    world = World(limits, model(max_followed=2), arrivals=arrivals, preemption=preemption, drafter=drafter).run()
    assert world.happened[Preempted] > 0 and (world.happened["more"] > 30) is has_drafts


def test_every_answer_has_its_shape() -> None:
    arrivals, alone = crowd_and_tokens_alone()
    requests = [request for groups in arrivals.values() for group in groups for request in group]
    held = [request for request in requests if request.params.structured_outputs is not None]
    assert {SHAPES.index(request.params.structured_outputs) for request in held} == set(range(len(SHAPES)))  # type: ignore[arg-type]
    for request in held:
        assert alone[request.id][-1] == EOS
        assert has_shape(request.params.structured_outputs, TOKENIZER.decode(alone[request.id]))  # type: ignore[arg-type]
