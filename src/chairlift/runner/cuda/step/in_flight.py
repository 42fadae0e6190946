"""Steps in flight: what the device part launched for a step input, and its output once the device has computed it.

Always: only `output` waits. Tokens and scores travel to pinned memory behind the step, beside the next one.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from chairlift.core.score import TokenScore
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.machine.to_device import on_host
from chairlift.runner.sampling.scores import to_scores
from chairlift.runner.torch.runner import device_lost_on_error
from chairlift.runner.torch.step_result import Scores


class StepOutput(NamedTuple):
    tokens: list[int]  # -1 where logits were not numbers
    scores: dict[int, TokenScore]  # by the place of the sample
    prompt_scores: list[Scores]  # in the order of the step input's
    was_ready: bool  # before it was asked for


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """A step whose tokens are still to be chosen."""

    step: StepInput
    logits: Tensor  # [at least as many as are sampled, vocab]; valid until the next step is launched
    tokens: Tensor  # int64 [as many]: the argmax of each row
    prompt_scores: list[Scores]


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step whose tokens were chosen; tensors are in pinned memory and valid when it is done."""

    step: StepInput
    tokens: Tensor  # int64 [as many as are sampled]
    measured: Tensor | None  # of the tokens that are scored
    prompt_scores: list[Scores]
    done: torch.cuda.Event

    def output(self) -> StepOutput:
        with device_lost_on_error():
            was_ready = self.done.query()
            self.done.synchronize()
        tokens: list[int] = self.tokens.numpy().tolist()
        scores: dict[int, TokenScore] = {}
        if self.measured is not None:
            places: list[int] = self.step.sampling.scored.tolist()
            top = self.step.sampling.num_top.tolist()
            scores = dict(zip(places, to_scores(self.measured, [tokens[i] for i in places], top), strict=True))
        return StepOutput(tokens, scores, self.prompt_scores, was_ready)


def read_back(launched: LaunchedStep, measured: Tensor | None, pinned: Tensor) -> InFlight:
    """measured: of the tokens that are scored. pinned: int64 [at least as many as are sampled], for its tokens."""
    step = launched.step
    if measured is not None:
        measured = on_host(measured.shape, measured.dtype, measured.device).copy_(measured, non_blocking=True)
    tokens = pinned[: step.num_samples].copy_(launched.tokens[: step.num_samples], non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    return InFlight(step, tokens, measured, launched.prompt_scores, done)
