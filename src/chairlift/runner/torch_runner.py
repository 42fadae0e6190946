"""Carries out plans on a model: copies blocks, runs the decoder, samples, all inside `submit`.

Always: a plan that cannot be carried out raises `RunnerFailed` and leaves the runner able to take the next one. Keeps
no requests: only what the last step sampled.
"""

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.plan import Chunk, StepPlan, StepResult
from chairlift.core.ports import RunnerFailed
from chairlift.core.score import TokenScore
from chairlift.runner.batching import batch_of, known_tokens
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.sampler import Row, sample
from chairlift.runner.scores import score

# Rows of logits that prompt scores look at in one go: bounds their memory to a few times this many vocabularies.
_MAX_SCORED_ROWS = 64


class TorchRunner:
    def __init__(self, model: Decoder, kv: KvCache, device: torch.device) -> None:
        self._model = model
        self._kv = kv
        self._device = device
        self._results: deque[StepResult] = deque()
        self._previous: dict[RequestId, int] = {}

    @property
    def depth(self) -> int:
        return 1

    def submit(self, plan: StepPlan) -> None:
        try:
            with torch.inference_mode():
                self._results.append(self._run(plan))
        except (RuntimeError, MemoryError) as error:
            self._previous = {}
            raise RunnerFailed(_first_line(error)) from error

    def collect(self) -> StepResult:
        return self._results.popleft()

    def _run(self, plan: StepPlan) -> StepResult:
        self._kv.swap_out(plan.swap_outs)
        self._kv.swap_in(plan.swap_ins)
        self._kv.copy(plan.copies)
        batch = batch_of(plan, self._kv.block_size, self._previous, self._device)
        hidden = self._model.hidden(batch, self._kv)  # [T, E]
        prompt_scores = dict(self._prompt_scores(plan, hidden))
        rows = [row for chunk in plan.chunks if chunk.samples for row in self._rows(chunk)]
        if not rows:
            self._previous = {}
            return StepResult(plan.step, (), prompt_scores=prompt_scores)
        logits = self._model.logits(hidden[batch.logit_rows])  # [S, vocab]
        logits = _per_sample(logits, plan)
        wanted = [index for index, row in enumerate(rows) if row.request.params.logprobs is not None]
        raw = logits[wanted] if wanted else logits  # a copy: sampling overwrites
        chosen = sample(logits, rows, self._model.ops)
        scores = score(raw, [chosen.tokens[i] for i in wanted], [rows[i].request.params.logprobs or 0 for i in wanted])
        failed = {
            row.request.id: "the model's output is not a number (overflow or damaged weights)"
            for row, is_bad in zip(rows, chosen.is_bad, strict=True)
            if is_bad
        }
        self._previous = {row.request.id: token for row, token in zip(rows, chosen.tokens, strict=True)}
        by_request = {rows[i].request.id: found for i, found in zip(wanted, scores, strict=True)}
        return StepResult(plan.step, chosen.tokens, by_request, prompt_scores, failed)

    def _rows(self, chunk: Chunk) -> Iterator[Row]:
        end = chunk.start + chunk.count
        tokens = known_tokens(chunk, self._previous)
        return (Row(request, tokens, end) for request in chunk.samples)

    def _prompt_scores(self, plan: StepPlan, hidden: Tensor) -> Iterator[tuple[RequestId, tuple[TokenScore, ...]]]:
        low = 0
        for chunk in plan.chunks:
            num_top, prompt = chunk.request.params.prompt_logprobs, chunk.request.prompt
            if num_top is not None and chunk.start + 1 < len(prompt):
                targets = prompt[chunk.start + 1 : chunk.start + chunk.count + 1]
                yield chunk.request.id, self._scored(hidden[low : low + len(targets)], targets, num_top)
            low += chunk.count

    def _scored(self, hidden: Tensor, targets: tuple[int, ...], num_top: int) -> tuple[TokenScore, ...]:
        scores: list[TokenScore] = []
        for low in range(0, len(targets), _MAX_SCORED_ROWS):
            part = targets[low : low + _MAX_SCORED_ROWS]
            logits = self._model.logits(hidden[low : low + len(part)])
            scores += score(logits, part, [num_top] * len(part))
        return tuple(scores)


def _per_sample(logits: Tensor, plan: StepPlan) -> Tensor:
    """A row for each sample: those of a chunk with several start from the same logits."""
    counts = [len(chunk.samples) for chunk in plan.chunks if chunk.samples]
    if len(counts) == sum(counts):
        return logits
    return logits.repeat_interleave(torch.tensor(counts, device=logits.device), dim=0)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
