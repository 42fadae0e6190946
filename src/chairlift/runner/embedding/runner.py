"""Carries out plans on a model that makes vectors or scores: an input is computed in the step that completes it.

A plan may cut an input in two, as it may a prompt. The parts before the last cost nothing here, and the last one all:
every position of an input sees the whole of it. So a step computes at most one input more than its budget. The token
that ends a request means nothing.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import torch

from chairlift.core.plan import Chunk, StepPlan, StepResult
from chairlift.runner.embedding.bodies import Embedder
from chairlift.runner.embedding.inputs import Input
from chairlift.runner.model import nothing
from chairlift.runner.torch.runner import device_lost_on_error, failure

_NO_TOKEN = 0
_NOT_FINITE = "the model made numbers that are not finite"


class EmbeddingRunner:
    def __init__(self, model: Embedder, device: torch.device, is_alone: bool) -> None:
        """is_alone: inputs are computed one by one, so that none changes the bits of another."""
        self._model = model
        self._device = device
        self._is_alone = is_alone
        self._results: deque[StepResult] = deque()
        self.on_beat: Callable[[], None] = nothing

    @property
    def depth(self) -> int:
        return 1

    def submit(self, plan: StepPlan) -> None:
        chunks = [chunk for chunk in plan.chunks if chunk.samples]
        try:
            with torch.inference_mode():
                numbers = self._compute(chunks)
        except (RuntimeError, MemoryError) as error:
            if self._device.type == "cuda":
                with device_lost_on_error():
                    torch.cuda.synchronize()
            raise failure(error) from error
        made = list(zip((sample.id for chunk in chunks for sample in chunk.samples), numbers, strict=True))
        self._results.append(
            StepResult(
                plan.step,
                [_NO_TOKEN] * len(made),
                failed={request: _NOT_FINITE for request, row in made if not np.isfinite(row).all()},
                vectors={request: row.tobytes() for request, row in made},
            )
        )

    def collect(self) -> StepResult:
        return self._results.popleft()

    def _compute(self, chunks: Sequence[Chunk]) -> list[np.ndarray]:
        """The numbers of each sample."""
        inputs = [Input(chunk.request.prompt, chunk.request.attributes.second_at) for chunk in chunks]
        groups = [[each] for each in inputs] if self._is_alone else [inputs] if inputs else []
        made = [self._model.vectors(group, self.on_beat).to("cpu", torch.float32).numpy() for group in groups]
        rows = [row for group in made for row in group]
        return [row for row, chunk in zip(rows, chunks, strict=True) for _ in chunk.samples]
