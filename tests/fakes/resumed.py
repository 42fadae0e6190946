"""Requests of every kind whose engines come and go, and what each must hear."""

from typing import Any

from chairlift.core.params import SamplingParams
from chairlift.core.score import ScoreList
from fakes.heard import Heard
from fakes.ledger import expected, expected_beams
from fakes.requests import make_samples, make_search
from fakes.switchboards import VOCAB_SIZE

LONG = 150


def wanted(prompt: list[int], params: SamplingParams) -> list[list[int]]:
    """What each sample must get, whatever becomes of engines."""
    assert params.max_tokens is not None
    if params.beam_width:
        search = make_search(1, prompt, params.beam_width, params.max_tokens, seed=params.seed, n=params.n)
        return expected_beams(search[0], VOCAB_SIZE)
    samples = make_samples(1, prompt, params.num_samples, params.max_tokens, seed=params.seed)
    return [expected(request, VOCAB_SIZE) for request in samples]


async def check(heard: Heard, prompt: list[int], params: SamplingParams) -> None:
    got = [await heard.tokens(sample) for sample in range(params.num_samples)]
    assert got == wanted(prompt, params)
    assert sum(output.finish is not None for output in heard.outputs) == params.num_samples
    if params.logprobs is not None and not params.beam_width:
        assert all(output.score.token == output.token for output in heard.outputs if output.token is not None)
    scored = [ScoreList.of(output.prompt_scores) for output in heard.outputs if output.prompt_scores is not None]
    assert len(scored) == (params.prompt_logprobs is not None)
    assert all([score.token for score in scores] == prompt[1:] for scores in scored)


KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"n": 3},
    {"n": 2, "prompt_logprobs": 1},
    # A step of these looks at every token of the vocabulary.
    {"n": 2, "best_of": 3, "logprobs": 0, "max_tokens": 12},
    {"logprobs": 2, "max_tokens": 12},
    {"beam_width": 2, "n": 2, "max_tokens": 6},
]
