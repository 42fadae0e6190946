"""From a step's hidden states and logits to its result: sampled tokens, scores, and who failed."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.plan import Sampled, StepPlan, StepResult
from chairlift.core.score import TokenScore
from chairlift.runner.batching import known_tokens
from chairlift.runner.model import Model
from chairlift.runner.sampler import Chosen, Row, sample
from chairlift.runner.scores import Measure, score

NOT_A_NUMBER = "the model's output is not a number (overflow or damaged weights)"
# Rows of logits that prompt scores look at in one go: bounds their memory to a few times this many vocabularies.
_MAX_SCORED_ROWS = 64


def sampled_rows(plan: StepPlan, previous: Mapping[RequestId, int]) -> list[Row]:
    """One for each sample, and one more for each draft, of the text up to it; `previous`: what the step before sampled,
    for tokens that the plan does not know."""
    rows: list[Row] = []
    for chunk in plan.chunks:
        if chunk.samples:
            tokens, end = known_tokens(chunk, previous), chunk.start + chunk.count
            rows += [Row(r, tokens, n) for r in chunk.samples for n in range(end - len(chunk.drafts), end + 1)]
    return rows


def answer(plan: StepPlan, rows: list[Row], logits: Tensor, prompt_scores: dict[RequestId, tuple[TokenScore, ...]],
           model: Model) -> tuple[StepResult, list[range]]:  # fmt: skip
    """The result of a step whose rows have these logits [S, vocab], which may be overwritten; and for each sample the
    rows whose tokens count."""
    wanted = [index for index, row in enumerate(rows) if row.request.params.logprobs is not None]
    raw = logits[wanted] if wanted else logits  # a copy: sampling overwrites
    chosen = sample(logits, rows, model.ops)
    tokens = [max(0, chosen.tokens[i]) for i in wanted]  # those that mean nothing must not do harm
    found = score(raw, tokens, [rows[i].request.params.logprobs or 0 for i in wanted])
    scores = dict(zip(wanted, found, strict=True))
    runs = list(_runs(plan, chosen))
    firsts = [(run[0], rows[run[0]].request.id) for run in runs]
    result = StepResult(
        plan.step,
        [chosen.tokens[i] for i, _ in firsts],
        {request: scores[i] for i, request in firsts if i in scores},
        prompt_scores,
        {request: NOT_A_NUMBER for i, request in firsts if chosen.is_bad[i]},
        {rows[i].request.id: [Sampled(chosen.tokens[j], scores.get(j)) for j in more] for i, *more in runs if more},
    )
    return result, runs


def _runs(plan: StepPlan, chosen: Chosen) -> Iterator[range]:
    """For each sample its first row, and those after it as long as the drafts before them are right. One whose logits
    are not numbers is left to the next step, where it comes first."""
    first = 0
    for chunk in plan.chunks:
        for _ in chunk.samples:
            last = first
            for draft in chunk.drafts:
                if chosen.tokens[last] != draft or chosen.is_bad[last + 1]:
                    break
                last += 1
            yield range(first, last + 1)
            first += 1 + len(chunk.drafts)


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
