"""Steps in flight: what a device part launched for a step input, and its answer once the device has come to it.

Always: nothing is waited for but by `output`. Tokens and what is told of them travel to pinned memory behind the step,
beside the next one.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from chairlift.core.score import TokenScore
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.cuda.step.pinned import pinned_ring
from chairlift.runner.machine.to_device import on_host
from chairlift.runner.sampling.scores import to_scores
from chairlift.runner.torch.runner import device_lost_on_error
from chairlift.runner.torch.step_result import Scores


class StepOutput(NamedTuple):
    tokens: list[int]  # -1 where logits were not numbers
    scores: dict[int, TokenScore]  # by the place of the sample
    prompt_scores: list[Scores]  # in the order of the step input's


@dataclass(frozen=True, slots=True)
class DeviceOutput:
    """What a step leaves on the device, and the scores of prompts, which are waited for."""

    tokens: Tensor  # int64 [at least as many as are sampled]
    measured: Tensor | None  # what is told of the tokens that are scored
    prompt_scores: list[Scores]


@dataclass(frozen=True, slots=True)
class InFlight:
    step: StepInput
    tokens: Tensor  # pinned, as is what is measured: there when it is done
    measured: Tensor | None
    prompt_scores: list[Scores]
    done: torch.cuda.Event

    def output(self) -> StepOutput:
        with device_lost_on_error():
            self.done.synchronize()
        tokens: list[int] = self.tokens.numpy().tolist()
        scores: dict[int, TokenScore] = {}
        if self.measured is not None:
            places: list[int] = self.step.sampling.scored.tolist()
            found = to_scores(self.measured, [tokens[i] for i in places], self.step.sampling.num_top.tolist())
            scores = dict(zip(places, found, strict=True))
        return StepOutput(tokens, scores, self.prompt_scores)


class Readback:
    def __init__(self, max_tokens: int, device: torch.device) -> None:
        self._pinned = pinned_ring(max_tokens, torch.int64, device)

    def send(self, step: StepInput, computed: DeviceOutput) -> InFlight:
        measured = _sent(computed.measured)
        tokens = next(self._pinned)[: step.num_samples].copy_(computed.tokens[: step.num_samples], non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return InFlight(step, tokens, measured, computed.prompt_scores, done)


def _sent(measured: Tensor | None) -> Tensor | None:
    """On its way into pinned memory."""
    if measured is None:
        return None
    return on_host(measured.shape, measured.dtype, measured.device).copy_(measured, non_blocking=True)
