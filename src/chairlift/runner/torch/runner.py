"""Carries out plans on a model: moves blocks, runs the decoder, samples, all inside `submit`.

Always: a plan that fails raises `RunnerFailed` and leaves the runner able to take the next one, unless the device is
lost. Keeps no requests, only the tokens and the sampling rows of the last step.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.ports import DeviceLost, HostMemory, RunnerFailed, RunnerFull
from chairlift.core.request import Request
from chairlift.runner.hooks import LoadsAdapters, LogitsHook
from chairlift.runner.kv_cache import Cache, KvCache
from chairlift.runner.memory.freed import is_full
from chairlift.runner.model import Model, nothing
from chairlift.runner.ops import Batch
from chairlift.runner.sampling.matchers import NO_MATCHERS, Masks, Matchers
from chairlift.runner.sampling.scores import prompt_targets
from chairlift.runner.sampling.table import IS_MASKED, BatchTable, Samples
from chairlift.runner.torch.batching import batch_of, known_tokens
from chairlift.runner.torch.step_result import make_step_result, score_prompts

Kv = TypeVar("Kv", bound=Cache)


class TorchRunner:
    def __init__(
        self, model: Model[Kv], kv: Kv, device: torch.device, matchers: Matchers | None = None,
        slots: LoadsAdapters | None = None,
    ) -> None:  # fmt: skip
        """matchers: for requests whose answers are held to a shape. slots: for their adapters."""
        self._model: Model[Any] = model
        self._kv = kv
        self._device = device
        self._results: deque[StepResult] = deque()
        self._previous: dict[RequestId, int] = {}
        self._table = BatchTable()
        self._matchers = matchers
        self._slots = slots
        self.on_logits: LogitsHook | None = None
        self.on_beat: Callable[[], None] = nothing

    @property
    def depth(self) -> int:
        return 1

    @property
    def host_memory(self) -> HostMemory | None:
        return self._kv.host if isinstance(self._kv, KvCache) else None

    def submit(self, plan: StepPlan) -> None:
        try:
            with torch.inference_mode():
                began = time.monotonic()
                if self._matchers is not None:
                    self._matchers.expect(plan)
                if plan.loads:
                    assert self._slots is not None
                    self._slots.load(plan.loads)
                self._kv.move_blocks(plan.swap_outs, plan.swap_ins, plan.copies)
                if not plan.chunks:
                    self._previous = {}
                    self._results.append(StepResult(plan.step, ()))
                    return
                kv = self._kv
                batch = batch_of(
                    plan, kv.block_size, self._previous, self._device, kv.kinds, kv.num_groups, kv.fit
                )  # fmt: skip
                prepare_s = time.monotonic() - began
                self._results.append(replace(self._run(plan, batch), prepare_s=prepare_s))
        except (RuntimeError, MemoryError) as error:
            self._previous = {}
            if self._device.type == "cuda":
                with device_lost_on_error():
                    torch.cuda.synchronize()
            raise failure(error) from error

    def collect(self) -> StepResult:
        return self._results.popleft()

    def _run(self, plan: StepPlan, batch: Batch) -> StepResult:
        targets = prompt_targets(plan)
        if targets and batch.logit_rows is not None:  # the scores of a prompt take all of its rows
            hidden = self._model.hidden(replace(batch, logit_rows=None), self._kv, self.on_beat)
            wanted = hidden[batch.logit_rows]
        else:
            wanted = hidden = self._model.hidden(batch, self._kv, self.on_beat)
        prompt_scores = dict(zip(targets, score_prompts(targets.values(), hidden, self._model), strict=True))
        rows = [
            (request, chunk, end)
            for chunk in plan.chunks
            for request in chunk.samples
            for end in range(chunk.start + chunk.count - len(chunk.drafts), chunk.start + chunk.count + 1)
        ]
        if not rows:
            self._previous = {}
            return StepResult(plan.step, (), prompt_scores=prompt_scores)
        requests, chunks, lengths = zip(*rows, strict=True)
        ids = [request.id for request in requests]
        samples, changes = self._table.of(plan.step, requests, lengths)
        texts = [known_tokens(chunk, self._previous) for chunk in chunks]
        logits = _per_sample(self._model.logits(wanted), plan)  # [S, vocab]
        untouched = logits if self.on_logits is None else logits.clone()
        masks = self._masks(plan.step, requests, samples, texts, lengths)
        result, runs = make_step_result(plan, ids, samples, texts, changes, logits, prompt_scores, self._model, masks)
        if self.on_logits is not None:  # without rows after wrong drafts
            shown = [row for run in runs for row in run]
            self.on_logits([ids[i] for i in shown], [lengths[i] - 1 for i in shown], untouched[shown])
        self._previous = {ids[run[0]]: token for run, token in zip(runs, result.tokens, strict=True)}
        self._previous |= {request: more[-1].token for request, more in result.more.items()}
        return result

    def _masks(
        self, step: int, requests: Sequence[Request], samples: Samples, texts: Sequence[Sequence[int]],
        lengths: Sequence[int],
    ) -> tuple[list[int], Masks] | None:  # fmt: skip
        """The rows that are held to a shape, with the tokens that may come there."""
        held = np.flatnonzero(samples["kind"] & IS_MASKED).tolist()
        if not held:
            return None
        if self._matchers is None:
            raise RuntimeError(NO_MATCHERS)
        outputs = [texts[i][len(requests[i].prompt) : lengths[i]] for i in held]
        rows = list(zip([requests[i] for i in held], outputs, strict=True))
        return held, self._matchers.masks(step, rows, self.on_beat)


def _per_sample(logits: Tensor, plan: StepPlan) -> Tensor:
    """A row for each sample and draft: samples of one chunk start from the same logits."""
    counts = [len(chunk.samples) for chunk in plan.chunks if chunk.samples for _ in range(1 + len(chunk.drafts))]
    if len(counts) == sum(counts):
        return logits
    return logits.repeat_interleave(torch.tensor(counts, device=logits.device), dim=0)


def failure(error: Exception) -> RunnerFailed:
    """A step's error as the engine knows it."""
    return RunnerFull(first_line(error)) if is_full(error) else RunnerFailed(first_line(error))


@contextmanager
def device_lost_on_error() -> Iterator[None]:
    """For waits on the device: an error there spoils the device, and every later call fails."""
    try:
        yield
    except RuntimeError as error:
        raise DeviceLost(first_line(error)) from error


def first_line(error: Exception) -> str:
    """Of its message, or its name without one."""
    return (str(error) or type(error).__name__).strip().splitlines()[0]
