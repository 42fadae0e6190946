"""From a step's hidden states and logits to its result: tokens, scores, and failed requests."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.plan import Sampled, StepPlan, StepResult
from chairlift.core.score import TokenScore
from chairlift.runner.model import Model
from chairlift.runner.sampling.matchers import Masks
from chairlift.runner.sampling.sampler import Chosen, choose, forbid, shape_logits
from chairlift.runner.sampling.scores import Measure, PromptTargets, max_rows, score
from chairlift.runner.sampling.table import IS_SCORED, Changes, Samples

NOT_A_NUMBER = "the model's output is not a number (overflow or damaged weights)"
# Rows of logits for prompt scores at once: bounds their memory to a few times this many vocabularies.
_MAX_SCORED_ROWS = 64

Scores = tuple[TokenScore, ...]


def make_step_result(
    plan: StepPlan, requests: Sequence[RequestId], samples: Samples, texts: Sequence[Sequence[int]],
    changes: Sequence[tuple[int, Changes]], logits: Tensor, prompt_scores: dict[RequestId, Scores], model: Model[Any],
    masks: tuple[list[int], Masks] | None = None,
) -> tuple[StepResult, list[range]]:  # fmt: skip
    """The result, and for each sample the rows whose tokens count. logits [S, vocab] of samples and drafts, each of its
    request; overwritten. masks: rows that are held to a shape, in their order, with the tokens that may come there."""
    chosen, scores = Chosen([], []), dict[int, TokenScore]()
    at_once = max_rows(logits)
    for low in range(0, len(logits), at_once):
        part, own = logits[low : low + at_once], samples[low : low + at_once].copy()
        own["row"], high = np.arange(len(own)), low + len(part)
        wanted = [i for i, kind in enumerate(own["kind"].tolist()) if kind & IS_SCORED]
        raw = part[wanted] if wanted else part  # a copy: sampling overwrites
        shape_logits(part, own, texts[low:high], [(i - low, each) for i, each in changes if low <= i < high])
        if masks is not None:
            held = slice(bisect_left(masks[0], low), bisect_left(masks[0], high))
            forbid(part, [i - low for i in masks[0][held]], masks[1].words[held])
        tokens, bad = choose(part, own, model.ops)
        told = [max(0, tokens[i]) for i in wanted]  # invalid tokens are -1
        scores |= zip([low + i for i in wanted], score(raw, told, own["num_top"][wanted].tolist()), strict=True)
        chosen.tokens.extend(tokens)
        chosen.bad.extend(low + i for i in bad)
    runs = list(_runs(plan, chosen))
    firsts = [(run[0], requests[run[0]]) for run in runs]
    result = StepResult(
        plan.step,
        [chosen.tokens[i] for i, _ in firsts],
        {request: scores[i] for i, request in firsts if i in scores},
        prompt_scores,
        {request: NOT_A_NUMBER for i, request in firsts if i in chosen.bad} | _failed(firsts, masks),
        {requests[i]: [Sampled(chosen.tokens[j], scores.get(j)) for j in more] for i, *more in runs if more},
    )
    return result, runs


def _failed(firsts: Sequence[tuple[int, RequestId]], masks: tuple[list[int], Masks] | None) -> dict[RequestId, str]:
    """Requests whose shape cannot be followed."""
    if masks is None or not masks[1].failed:
        return {}
    faults = {masks[0][index]: fault for index, fault in masks[1].failed.items()}
    return {request: faults[i] for i, request in firsts if i in faults}


def _runs(plan: StepPlan, chosen: Chosen) -> Iterator[range]:
    """For each sample its first row, and further ones while the drafts before them are right. A row whose logits are
    not numbers is left to the next step."""
    first = 0
    for chunk in plan.chunks:
        for _ in chunk.samples:
            last = first
            for draft in chunk.drafts:
                if chosen.tokens[last] != draft or last + 1 in chosen.bad:
                    break
                last += 1
            yield range(first, last + 1)
            first += 1 + len(chunk.drafts)


def score_prompts(
    targets: Iterable[PromptTargets], hidden: Tensor, model: Model[Any], by: Measure | None = None
) -> list[Scores]:
    """hidden: of all rows of the step, [T, E]."""
    results = []
    for low, tokens, num_top in targets:
        scores: list[TokenScore] = []
        for first in range(0, len(tokens), _MAX_SCORED_ROWS):
            part = tokens[first : first + _MAX_SCORED_ROWS]
            logits = model.logits(hidden[low + first : low + first + len(part)])
            scores += score(logits, part, [num_top] * len(part), by)
        results.append(tuple(scores))
    return results
