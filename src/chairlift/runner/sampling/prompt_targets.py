"""The prompt tokens that a step predicts, for requests with prompt log-probabilities. Needs no torch."""

from collections.abc import Sequence
from typing import NamedTuple

from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan


class PromptTargets(NamedTuple):
    """Tokens of a prompt that rows first, first + 1, ... of a step predict."""

    first: int
    tokens: Sequence[int]
    num_top: int  # most likely tokens of each score


def prompt_targets(plan: StepPlan) -> dict[RequestId, PromptTargets]:
    targets = {}
    chunks = plan.chunks[plan.num_decodes :]
    low = plan.num_tokens - sum(chunk.count for chunk in chunks)
    for chunk in chunks:
        num_top, prompt = chunk.request.params.prompt_logprobs, chunk.request.prompt
        if num_top is not None and chunk.start + 1 < len(prompt):
            tokens = prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
            targets[chunk.request.id] = PromptTargets(low, tokens, num_top)
        low += chunk.count
    return targets
