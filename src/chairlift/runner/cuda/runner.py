"""`CudaRunner`: carries out plans on a GPU without waiting for it.

A step is laid out in pinned memory, travels in one copy, and runs as a captured graph where its shape allows: decodes
and short prompts, padded to a rung of a ladder. Tokens that a step samples stay on the device for the next one and come
back to the host beside it, so two steps are in flight and the GPU does not wait for Python. Long prompts run eagerly.
A step with a request that is sampled, shaped or scored waits for its logits.

Always: plans are carried out in order on one stream. Padding has position -1 and slot -1 and touches nothing but the
last row of the sampled tokens, which nobody has.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.request import Request
from chairlift.runner.answers import NOT_A_NUMBER, answer, sampled_rows, score_prompts
from chairlift.runner.cuda.flash import Planned, Planner
from chairlift.runner.cuda.flash_kernels import FlashKernels
from chairlift.runner.cuda.layout import FILLERS, NUM_COLUMNS, Layout, lay_out
from chairlift.runner.cuda.ops import QUERIES, CudaBatch, split_of
from chairlift.runner.cuda.rows import Rows
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.torch_runner import failure

# Tokens of a captured step: beyond the last rung a step runs eagerly, where launching costs little beside computing.
LADDER = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512)
_NUM_BUFFERS = 4  # pinned; more than steps in flight, so that none is overwritten before it has travelled

Graph = tuple[torch.cuda.CUDAGraph, Tensor, Tensor]  # with its logits and tokens


@dataclass(slots=True)
class _Step:
    """A step under way."""

    plan: StepPlan
    requests: list[RequestId]
    tokens: Tensor  # pinned
    done: torch.cuda.Event
    result: StepResult | None = None  # known already


class CudaRunner:
    depth = 2

    def __init__(
        self, model: Decoder, kv: KvCache, device: torch.device, limits: Limits, flash: FlashKernels | None = None
    ) -> None:
        self._model = model
        self._kv = kv
        self._device = device
        num_rows = 2 * limits.max_running + 16
        most = max(limits.max_step_tokens, LADDER[-1])
        width = -(-limits.max_model_len // kv.block_size)
        self._rows = Rows(num_rows - 1)
        self._tables = torch.zeros(num_rows, width, dtype=torch.int32, device=device)
        self._planner = None if flash is None else Planner(flash, self._tables, most, LADDER[-1])
        self._planned: Planned | None = None  # FlashInfer's part in the step that is being launched
        self._last = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._columns = torch.zeros(NUM_COLUMNS, most, dtype=torch.int32, device=device)
        self._pinned = [torch.zeros(NUM_COLUMNS, most, dtype=torch.int32, pin_memory=True) for _ in range(_NUM_BUFFERS)]
        self._answers = [torch.zeros(most, dtype=torch.int64, pin_memory=True) for _ in range(_NUM_BUFFERS)]
        self._turn = 0
        self._graphs: dict[tuple[int, int, int], Graph] = {}
        self._pool: Any = None  # of memory, which all graphs share
        self._steps: deque[_Step] = deque()

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> None:
        try:
            self._steps.append(self._launch(plan))
        except (RuntimeError, MemoryError) as error:
            raise failure(error) from error

    def collect(self) -> StepResult:
        step = self._steps.popleft()
        if step.result is not None:
            return step.result
        tokens = self._tokens_of(step)
        failed = {r: NOT_A_NUMBER for r, token in zip(step.requests, tokens, strict=True) if token < 0}
        return StepResult(step.plan.step, tokens, failed=failed)

    @staticmethod
    def _tokens_of(step: _Step) -> list[int]:
        step.done.synchronize()
        tokens: list[int] = step.tokens[: len(step.requests)].tolist()
        return tokens

    def _launch(self, plan: StepPlan) -> _Step:
        self._kv.carry_out(plan)
        self._turn = (self._turn + 1) % _NUM_BUFFERS
        layout = lay_out(plan, self._rows, self._kv.block_size, QUERIES)
        is_plain = all(_is_plain(chunk.request) for chunk in plan.chunks)
        num_padded = self._rung(layout, is_plain)
        self._send(layout, num_padded)
        self._planned = self._planner.plan(layout, num_padded) if self._planner else None
        requests = [request.id for chunk in plan.chunks for request in chunk.samples]
        step = _Step(plan, requests, self._answers[self._turn], torch.cuda.Event())
        if not is_plain:
            self._finish(step, layout)
            return step
        if num_padded is None:
            hidden = self._forward(layout.num_tokens, _num_splits(layout, layout.num_tokens), self._tiles(layout))
            _, tokens = self._choose(hidden, layout.num_samples)
        else:
            tokens = self._replay(num_padded, layout)
        step.tokens[: len(requests)].copy_(tokens[: len(requests)], non_blocking=True)
        step.done.record()
        return step

    def _rung(self, layout: Layout, is_plain: bool) -> int | None:
        """How many tokens the captured step has; None for one that is not captured."""
        if layout.tiles or layout.num_tokens > LADDER[-1] or not is_plain:
            return None
        if self._planner is not None and not self._planner.can_capture(layout):
            return None
        return next(rung for rung in LADDER if rung >= layout.num_tokens)

    def _send(self, layout: Layout, num_padded: int | None) -> None:
        count = num_padded or max(layout.num_tokens, layout.num_samples)
        pinned = self._pinned[self._turn]
        view = pinned.numpy()
        for place, (values, filler) in enumerate(zip(layout.columns, FILLERS, strict=True)):
            view[place, : len(values)] = values
            view[place, len(values) : count] = filler
        self._columns[:, :count].copy_(pinned[:, :count], non_blocking=True)
        if layout.updates:
            moves = torch.tensor(layout.updates, dtype=torch.int64).pin_memory().to(self._device, non_blocking=True)
            self._tables[moves[:, 0], moves[:, 1]] = moves[:, 2].int()

    def _tiles(self, layout: Layout) -> Tensor | None:
        if not layout.tiles or self._planned is not None:  # then it answers them
            return None
        return torch.tensor(layout.tiles, dtype=torch.int32).to(self._device)

    def _replay(self, num_tokens: int, layout: Layout) -> Tensor:
        splits = 1 << (_num_splits(layout, num_tokens) - 1).bit_length()  # rounded up, so that there are few graphs
        if self._planned is not None:
            splits = 1  # it splits as it likes
        num_samples = num_tokens if layout.num_samples > num_tokens // 2 else max(1, num_tokens // 2)
        key = (num_tokens, splits, num_samples)
        if key not in self._graphs:
            self._graphs[key] = self._capture(*key)
        graph, _, tokens = self._graphs[key]
        graph.replay()
        return tokens

    def _capture(self, num_tokens: int, num_splits: int, num_samples: int) -> Graph:
        columns = self._columns.clone()
        for place, filler in enumerate(FILLERS):
            self._columns[place].fill_(filler)  # the trial run is all padding
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._choose(self._forward(num_tokens, num_splits, None), num_samples)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits, tokens = self._choose(self._forward(num_tokens, num_splits, None), num_samples)
        self._pool = self._pool or graph.pool()
        self._columns.copy_(columns)
        return graph, logits, tokens

    def _forward(self, num_tokens: int, num_splits: int, tiles: Tensor | None) -> Tensor:
        """What the head reads, of every token."""
        tokens, refs, positions, slots, table_rows, _, _ = self._columns[:, :num_tokens]
        rows = refs.long()
        short = positions
        if tiles is not None:  # rows that the tiles answer are none of the other kernel's business
            short = positions.clone()
            for first, count, _, _ in tiles.tolist():
                short[first : first + count] = -1
        planned = self._planned
        if planned is not None and planned.high - planned.low < num_tokens:
            short = positions.clone()
            short[planned.low : planned.high] = -1
        nothing = self._columns[0, :0]
        batch = CudaBatch(
            tokens=torch.where(rows >= 0, self._last[rows.clamp(min=0)], tokens.long()),
            positions=positions,
            slots=slots,
            starts=nothing,
            contexts=nothing,
            tables=self._tables,
            num_decodes=0,
            max_context=0,
            logit_rows=nothing,
            table_rows=table_rows,
            num_splits=num_splits,
            tiles=tiles,
            short_positions=short,
            planned=planned,
        )
        return self._model.hidden(batch, self._kv)

    def _choose(self, hidden: Tensor, num_samples: int) -> tuple[Tensor, Tensor]:
        """(logits, tokens) of the samples, the likeliest each; -1 where logits are not numbers."""
        _, _, _, _, _, logit_rows, sample_rows = self._columns[:, :num_samples].long()
        logits = self._model.logits(hidden[logit_rows])
        tokens = logits.argmax(dim=-1)
        tokens = torch.where(logits.gather(1, tokens[:, None]).flatten().isfinite(), tokens, -1)
        self._keep(sample_rows, tokens)
        return logits, tokens

    def _keep(self, sample_rows: Tensor, tokens: Tensor) -> None:
        rows = torch.where(sample_rows >= 0, sample_rows, len(self._last) - 1)
        self._last.index_copy_(0, rows, tokens.clamp(min=0))

    def _finish(self, step: _Step, layout: Layout) -> None:
        """A step whose tokens are not simply the likeliest, or whose scores are wanted: done when this returns."""
        plan, previous = step.plan, {}
        if self._steps:
            previous = dict(zip(self._steps[-1].requests, self._tokens_of(self._steps[-1]), strict=True))
        hidden = self._forward(layout.num_tokens, _num_splits(layout, layout.num_tokens), self._tiles(layout))
        prompt_scores = score_prompts(plan, hidden, self._model)
        rows = sampled_rows(plan, previous)
        if not rows:
            step.result = StepResult(plan.step, (), prompt_scores=prompt_scores)
            return
        logits, _ = self._choose(hidden, layout.num_samples)
        step.result = answer(plan, rows, logits, prompt_scores, self._model)
        tokens = torch.tensor(step.result.tokens, device=self._device)
        self._keep(self._columns[-1, : len(rows)].long(), tokens)
        step.tokens[: len(rows)].copy_(tokens)
        step.done.record()


def _num_splits(layout: Layout, num_rows: int) -> int:
    return -(-layout.max_context // split_of(num_rows))


def _is_plain(request: Request) -> bool:
    """Whether its token is simply the likeliest, and nobody wants to know how likely."""
    params = request.params
    has_scores = params.logprobs is not None or params.prompt_logprobs is not None
    is_shaped = params.is_shaped and (request.stop_ids or params.has_penalties or params.logit_bias)
    return params.is_greedy and not has_scores and not is_shaped
