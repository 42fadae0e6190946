"""Steps under way: what was launched for a plan, and its result once the device has come to it.

Always: nothing is waited for but by `result`. Tokens and what is told of them travel to pinned memory behind the step,
beside the next one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.score import TokenScore
from chairlift.runner.answers import NOT_A_NUMBER
from chairlift.runner.cuda.asks import StepAsks
from chairlift.runner.cuda.pinned import in_turns
from chairlift.runner.scores import told
from chairlift.runner.to_device import on_host
from chairlift.runner.torch_runner import waiting

PromptScores = dict[RequestId, tuple[TokenScore, ...]]


@dataclass(frozen=True, slots=True)
class Computed:
    """What a step leaves on the device, and the scores of prompts, which are waited for."""

    tokens: Tensor  # int64 [at least as many as are sampled]
    measured: Tensor | None  # what is told of the tokens that are scored
    prompt_scores: PromptScores


@dataclass(frozen=True, slots=True)
class UnderWay:
    plan: StepPlan
    asks: StepAsks | None
    tokens: Tensor  # pinned, as is what is measured: there when it is done
    measured: Tensor | None
    prompt_scores: PromptScores
    done: torch.cuda.Event

    def result(self) -> StepResult:
        with waiting():
            self.done.synchronize()
        tokens: list[int] = self.tokens.numpy().tolist()
        failed: dict[RequestId, str] = {}
        if min(tokens, default=0) < 0:
            failed = {r: NOT_A_NUMBER for r, token in zip(sampled(self.plan), tokens, strict=True) if token < 0}
        return StepResult(self.plan.step, tokens, self._scores(tokens), self.prompt_scores, failed)

    def _scores(self, tokens: list[int]) -> dict[RequestId, TokenScore]:
        if self.asks is None or self.measured is None:
            return {}
        rows = self.asks.scored.tolist()
        scores = told(self.measured, [tokens[i] for i in rows], self.asks.num_top)
        requests = sampled(self.plan)
        return {requests[i]: score for i, score in zip(rows, scores, strict=True)}


class WayBack:
    def __init__(self, max_tokens: int, device: torch.device) -> None:
        self._pinned = in_turns(max_tokens, torch.int64, device)

    def send(self, plan: StepPlan, asks: StepAsks | None, num_samples: int, computed: Computed) -> UnderWay:
        measured = _sent(computed.measured)
        tokens = next(self._pinned)[:num_samples].copy_(computed.tokens[:num_samples], non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return UnderWay(plan, asks, tokens, measured, computed.prompt_scores, done)


def sampled(plan: StepPlan) -> list[RequestId]:
    """Who takes a token from the step, in order."""
    return [request.id for chunk in plan.chunks for request in chunk.samples]


def _sent(measured: Tensor | None) -> Tensor | None:
    """On its way into pinned memory."""
    if measured is None:
        return None
    return on_host(measured.shape, measured.dtype, measured.device).copy_(measured, non_blocking=True)
