"""From a step's hidden states and logits to its result: sampled tokens, scores, and who failed."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.score import TokenScore
from chairlift.runner.batching import known_tokens
from chairlift.runner.model import Model
from chairlift.runner.sampler import Row, sample
from chairlift.runner.scores import Measure, score

NOT_A_NUMBER = "the model's output is not a number (overflow or damaged weights)"
# Rows of logits that prompt scores look at in one go: bounds their memory to a few times this many vocabularies.
_MAX_SCORED_ROWS = 64


def sampled_rows(plan: StepPlan, previous: Mapping[RequestId, int]) -> list[Row]:
    """One for each sample; `previous`: what the step before sampled, for tokens that the plan does not know."""
    return [
        Row(request, known_tokens(chunk, previous), chunk.start + chunk.count)
        for chunk in plan.chunks
        if chunk.samples
        for request in chunk.samples
    ]


def answer(plan: StepPlan, rows: list[Row], logits: Tensor, prompt_scores: dict[RequestId, tuple[TokenScore, ...]],
           model: Model) -> StepResult:  # fmt: skip
    """The result of a step whose samples have these logits [S, vocab]; may overwrite them."""
    wanted = [index for index, row in enumerate(rows) if row.request.params.logprobs is not None]
    raw = logits[wanted] if wanted else logits  # a copy: sampling overwrites
    chosen = sample(logits, rows, model.ops)
    tokens = [max(0, chosen.tokens[i]) for i in wanted]  # those that mean nothing must not do harm
    found = score(raw, tokens, [rows[i].request.params.logprobs or 0 for i in wanted])
    scores = {rows[i].request.id: value for i, value in zip(wanted, found, strict=True)}
    failed = {row.request.id: NOT_A_NUMBER for row, is_bad in zip(rows, chosen.is_bad, strict=True) if is_bad}
    return StepResult(plan.step, chosen.tokens, scores, prompt_scores, failed)


def score_prompts(
    plan: StepPlan, hidden: Tensor, model: Model, by: Measure | None = None
) -> dict[RequestId, tuple[TokenScore, ...]]:
    """The scores of the prompt tokens that this step's rows [T, E] predict, for requests that ask."""
    return dict(_score_prompts(plan, hidden, model, by))


def _score_prompts(
    plan: StepPlan, hidden: Tensor, model: Model, by: Measure | None
) -> Iterator[tuple[RequestId, tuple[TokenScore, ...]]]:
    low = 0
    for chunk in plan.chunks:
        num_top, prompt = chunk.request.params.prompt_logprobs, chunk.request.prompt
        if num_top is not None and chunk.start + 1 < len(prompt):
            targets = prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
            scores: list[TokenScore] = []
            for first in range(0, len(targets), _MAX_SCORED_ROWS):
                part = targets[first : first + _MAX_SCORED_ROWS]
                logits = model.logits(hidden[low + first : low + first + len(part)])
                scores += score(logits, part, [num_top] * len(part), by)
            yield chunk.request.id, tuple(scores)
        low += chunk.count
