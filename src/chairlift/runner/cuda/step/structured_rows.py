"""The answers of a step that are held to a shape, with the tokens that they have so far. Without torch."""

from chairlift.core.ids import RequestId
from chairlift.core.plan import Chunk, StepPlan
from chairlift.core.request import Request
from chairlift.runner.cuda.step.input import StepInput


def is_known(plan: StepPlan, step: StepInput) -> bool:
    """Whether none of them has a token that the step ahead is still to bring."""
    return all(chunk.start + chunk.count <= chunk.num_tokens for _, chunk in _held(plan, step))


def structured_rows(plan: StepPlan, step: StepInput, last: dict[RequestId, int]) -> list[tuple[Request, list[int]]]:
    """In the order of the step input's rows. last: tokens of the step ahead. One that ends its answer, means
    nothing or never came is left out: what comes after it is thrown away."""
    rows = []
    for request, chunk in _held(plan, step):
        output = list(chunk.tokens[len(request.prompt) : chunk.num_tokens])
        if chunk.start + chunk.count > chunk.num_tokens:
            token = last.get(request.id, -1)
            output += [token] if token >= 0 and token not in request.stop_ids else []
        rows.append((request, output))
    return rows


def _held(plan: StepPlan, step: StepInput) -> list[tuple[Request, Chunk]]:
    samples = [(request, chunk) for chunk in plan.chunks for request in chunk.samples]
    return [samples[row] for row in step.sampling.structured.tolist()]
