"""`CudaRunner`: carries out plans on a GPU without waiting for it.

A step is laid out in pinned memory, travels in one copy, and runs as a captured graph where its shape allows: decodes
and short prompts, padded to a rung of a ladder. Tokens that a step samples stay on the device for the next one and come
back to the host beside it, so two steps are in flight and the GPU does not wait for Python. Long prompts run eagerly.
What requests ask beyond the likeliest token is done after the logits, on the device too (sampling.py). Only a step that
scores the tokens of a prompt waits.

Always: plans are carried out in order on one stream. Padding has position -1 and slot -1 and touches nothing but the
last row of the sampled tokens, which nobody has.
"""

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.plan import Chunk, StepPlan, StepResult
from chairlift.core.score import TokenScore
from chairlift.runner.answers import NOT_A_NUMBER, score_prompts
from chairlift.runner.cuda import exact_attend, exact_scores
from chairlift.runner.cuda.asks import Asks, StepAsks
from chairlift.runner.cuda.exact_decoder import exact_decoder
from chairlift.runner.cuda.flash import Planned, Planner
from chairlift.runner.cuda.flash_kernels import FlashKernels
from chairlift.runner.cuda.history import remember_kernel
from chairlift.runner.cuda.ladder import ladder
from chairlift.runner.cuda.layout import FILLERS, MAX_ROW_PAIRS, NUM_COLUMNS, Layout, lay_out
from chairlift.runner.cuda.likeliest import likeliest_kernel
from chairlift.runner.cuda.one_row_decoder import OneRowDecoder, for_one_row
from chairlift.runner.cuda.ops import QUERIES, CudaBatch
from chairlift.runner.cuda.rows import Rows
from chairlift.runner.cuda.sampling import Sampling
from chairlift.runner.cuda.tiling import Tiling, tiling
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.scores import measure, told
from chairlift.runner.to_device import on_host, to_device
from chairlift.runner.torch_runner import failure, waiting
from chairlift.runner.watch import LogitsSeen

_TILE = 16384  # logits that are looked at in one go
_NUM_BUFFERS = 4  # pinned; more than steps in flight, so that none is overwritten before it has travelled

_log = logging.getLogger(__name__)

Graph = tuple[torch.cuda.CUDAGraph, Tensor, Tensor]  # with its logits and tokens
Key = tuple[int, Tiling, int]  # of a captured step: tokens, how contexts are cut, samples
_LIKELY_CONTEXT = 4096  # longer ones are captured when they come


@dataclass(slots=True)
class _Step:
    """A step under way."""

    plan: StepPlan
    asks: StepAsks | None
    tokens: Tensor  # pinned: as many as are sampled
    done: torch.cuda.Event
    measured: Tensor | None = None  # pinned: of the tokens that are scored
    prompt_scores: dict[RequestId, tuple[TokenScore, ...]] = field(default_factory=dict)


class CudaRunner:
    depth = 2
    max_row_pairs = MAX_ROW_PAIRS

    def __init__(
        self, model: Decoder, kv: KvCache, device: torch.device, limits: Limits, flash: FlashKernels | None = None,
        exact: bool = False,
    ) -> None:  # fmt: skip
        """exact: of a model whose operations are."""
        width = -(-limits.max_model_len // kv.block_size)
        if exact:
            self._model = exact_decoder(model, kv.block_size, width, device)
        else:
            self._model = for_one_row(model, device, OneRowDecoder)
        self._exact = exact
        self._num_queries = exact_attend.QUERIES if exact else QUERIES
        self._measure = exact_scores.measure if exact else measure
        self._kv = kv
        self._device = device
        self._has_groups = model.config.num_heads != model.config.num_kv_heads
        num_rows = 2 * limits.max_running + 16
        self._ladder = ladder(limits.max_running)
        most = max(limits.max_step_tokens, self._ladder[-1])
        self._rows = Rows(num_rows - 1)
        self._tables = torch.zeros(num_rows, width, dtype=torch.int32, device=device)
        self._planner = None if flash is None else Planner(flash, self._tables, most, self._ladder[-1])
        self._planned: Planned | None = None  # FlashInfer's part in the step that is being launched
        self._last = torch.zeros(num_rows, dtype=torch.int64, device=device)
        self._asks = Asks(num_rows)
        self._sampling = Sampling(self._tables, kv.tokens, self._last, self._measure)
        # The columns of a step lie side by side, so that they travel as one piece.
        size = NUM_COLUMNS * _aligned(most)
        self._space = torch.zeros(size, dtype=torch.int32, device=device)
        self._columns = _columns(self._space, most)  # those of the step that is being launched
        self._pinned = [on_host((size,), torch.int32, device) for _ in range(_NUM_BUFFERS)]
        self._answers = [on_host((most,), torch.int64, device) for _ in range(_NUM_BUFFERS)]
        self._turn = 0
        self._graphs: dict[Key, Graph] = {}
        self._pool: Any = None  # of memory, which all graphs share
        self._side: torch.cuda.Stream | None = None  # on which they are captured
        # Of the captured step that ran last: if each kept its own, they would take gigabytes.
        self._logits = torch.empty(self._ladder[-1], limits.vocab_size, dtype=torch.float32, device=device)
        self._can_capture = True
        self._likely = _likely_keys(min(most, limits.max_running), limits.max_model_len, self._has_groups, exact)
        self._steps: deque[_Step] = deque()
        self.logits_seen: LogitsSeen | None = None
        self.uses_graphs = True  # off: every step runs eagerly, as it does where its shape was never captured

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> None:
        try:
            self._steps.append(self._launch(plan))
        except (RuntimeError, MemoryError, triton.TritonError) as error:
            self._rows.forget_tables()
            _wait()
            raise failure(error) from error

    def collect(self) -> StepResult:
        step = self._steps.popleft()
        with waiting():
            step.done.synchronize()
        tokens: list[int] = step.tokens.numpy().tolist()
        failed: dict[RequestId, str] = {}
        if min(tokens, default=0) < 0:
            failed = {r: NOT_A_NUMBER for r, token in zip(_sampled(step.plan), tokens, strict=True) if token < 0}
        return StepResult(step.plan.step, tokens, _scores(step, tokens), step.prompt_scores, failed)

    @torch.inference_mode()
    def prepare(self) -> bool:
        """Captures one more of the steps that are likely to come, between steps; False when there is none."""
        if not self._can_capture or self._planner is not None:
            return False
        key = next((key for key in self._likely if key not in self._graphs), None)
        if key is None:
            return False
        with suppress(RuntimeError, triton.TritonError):  # nobody waits for it
            self._capture(*key)
        return key in self._graphs

    def rehearse(self, plan: StepPlan) -> None:
        """Launches all that the plan takes and asks for no result: on a device without memory there is none."""
        self._can_capture = False
        layout = lay_out(plan, self._rows, self._kv.block_size, self._num_queries)
        self._compute(plan, layout, self._asks.of(layout))

    def rehearse_likely(self) -> None:
        """The same for what `prepare` captures: of each cut one step of a single token, which has kernels of its own,
        and one of several."""
        for key in {(cut, num_tokens == 1): (num_tokens, cut, rows) for num_tokens, cut, rows in self._likely}.values():
            with self._padding(key[0]):
                self._run(*key)

    def _launch(self, plan: StepPlan) -> _Step:
        self._kv.carry_out(plan)
        self._turn = (self._turn + 1) % _NUM_BUFFERS
        layout = lay_out(plan, self._rows, self._kv.block_size, self._num_queries)
        num_samples = layout.num_samples
        answers = self._answers[self._turn][:num_samples]
        step = _Step(plan, self._asks.of(layout), answers, torch.cuda.Event())
        tokens, measured, step.prompt_scores = self._compute(plan, layout, step.asks)
        step.measured = _sent_back(measured)
        step.tokens.copy_(tokens[:num_samples], non_blocking=True)
        step.done.record()
        return step

    def _compute(
        self, plan: StepPlan, layout: Layout, asks: StepAsks | None
    ) -> tuple[Tensor, Tensor | None, dict[RequestId, tuple[TokenScore, ...]]]:
        """Tokens, what is told of those that are scored, and the scores of prompts."""
        prompt_scores: dict[RequestId, tuple[TokenScore, ...]] = {}
        has_scored_prompt = any(_is_scored(chunk) for chunk in plan.chunks[plan.num_decodes :])
        num_padded = None if has_scored_prompt else self._rung(layout)
        self._send(layout, num_padded)
        self._planned = self._planner.plan(layout, num_padded) if self._planner else None
        if num_padded is None:
            cut = self._cut(layout.num_short, layout.max_context)
            hidden = self._forward(layout.num_tokens, layout.num_short, cut, self._tiles(layout))
            if has_scored_prompt:
                prompt_scores = score_prompts(plan, hidden, self._model, self._measure)
            logits, tokens = self._choose(hidden, layout.num_samples)
        else:
            logits, tokens = self._replay(num_padded, layout)
        if self.logits_seen is not None:
            requests = _sampled(plan)
            positions = [chunk.start + chunk.count - 1 for chunk in plan.chunks for _ in chunk.samples]
            self.logits_seen(requests, positions, logits[: len(requests)])
        measured = None if asks is None else self._sampling.choose(asks, logits, tokens)
        return tokens, measured, prompt_scores

    def _cut(self, num_rows: int, max_context: int) -> Tiling:
        """Of the context rounded up to a power of two: each cut is a kernel to compile and a graph to capture."""
        return tiling(num_rows, _power_of_two(max_context), self._has_groups, self._exact)

    def _rung(self, layout: Layout) -> int | None:
        """How many tokens the captured step has; None for one that is not captured."""
        count = max(layout.num_tokens, layout.num_samples)
        if layout.tiles or count > self._ladder[-1]:
            return None
        if self._planner is not None and not self._planner.can_capture(layout):
            return None
        return next(rung for rung in self._ladder if rung >= count)

    def _send(self, layout: Layout, num_padded: int | None) -> None:
        count = num_padded or max(layout.num_tokens, layout.num_samples)
        pinned = _columns(self._pinned[self._turn], count)
        view = pinned.numpy()
        for place, (values, filler) in enumerate(zip(layout.columns, FILLERS, strict=True)):
            view[place, : len(values)] = values
            view[place, len(values) :] = filler
        self._columns = _columns(self._space, count).copy_(pinned, non_blocking=True)
        if layout.updates:
            moves = to_device(np.array(layout.updates), self._device)
            self._tables[moves[:, 0], moves[:, 1]] = moves[:, 2].int()

    def _tiles(self, layout: Layout) -> Tensor | None:
        if not layout.tiles or self._planned is not None:  # then it answers them
            return None
        return to_device(np.array(layout.tiles, np.int32), self._device)

    def _replay(self, num_tokens: int, layout: Layout) -> tuple[Tensor, Tensor]:
        # FlashInfer splits as it likes.
        cut = self._cut(num_tokens, 1 if self._planned is not None else layout.max_context)
        num_samples = num_tokens if layout.num_samples > num_tokens // 2 else max(1, num_tokens // 2)
        key = (num_tokens, cut, num_samples)
        if key not in self._graphs and self._can_capture and self.uses_graphs:
            self._capture(*key)
        if key not in self._graphs or not self.uses_graphs:
            return self._run(*key)
        graph, logits, tokens = self._graphs[key]
        graph.replay()
        return logits, tokens

    def _capture(self, num_tokens: int, cut: Tiling, num_samples: int) -> None:
        """Where there is no memory for it nothing is captured, now or later: the steps run all the same."""
        stream = torch.cuda.current_stream()
        # Always the same: libraries keep memory for every stream that they have seen.
        side = self._side = self._side or torch.cuda.Stream()
        try:
            # Around the capture too: where that cannot be ended, torch would stay on its stream.
            with self._padding(num_tokens), _beside(stream, side):
                self._run(num_tokens, cut, num_samples)  # on trial: what is made on first use cannot be captured
                graph = torch.cuda.CUDAGraph()
                with _capturing(graph, self._pool):
                    logits, tokens = self._run(num_tokens, cut, num_samples)
                    self._logits[:num_samples].copy_(logits)
            self._pool = self._pool or graph.pool()
            self._graphs[num_tokens, cut, num_samples] = (graph, self._logits[:num_samples], tokens)
        except RuntimeError as error:
            self._can_capture = False
            _log.warning("no more steps are captured: %s", failure(error))

    @contextmanager
    def _padding(self, num_tokens: int) -> Iterator[None]:
        """A step of nothing but padding, in the place of the one that is being launched."""
        before = self._columns
        self._columns = _columns(self._space, num_tokens)
        kept = self._columns.clone()
        for place, filler in enumerate(FILLERS):
            self._columns[place].fill_(filler)
        try:
            yield
        finally:
            self._columns.copy_(kept)
            self._columns = before

    def _run(self, num_tokens: int, cut: Tiling, num_samples: int) -> tuple[Tensor, Tensor]:
        """A step that is captured or could be."""
        return self._choose(self._forward(num_tokens, num_tokens, cut, None), num_samples)

    def _forward(self, num_tokens: int, num_short: int, cut: Tiling, tiles: Tensor | None) -> Tensor:
        """What the head reads, of every token; num_short: rows up to the last that is answered by itself."""
        known, refs, positions, slots, table_rows, _, _, short = self._columns[:, :num_tokens]
        tokens = torch.empty(num_tokens, dtype=torch.int64, device=self._device)
        remember_kernel[(triton.cdiv(num_tokens, 256),)](
            known, refs, slots, self._last, tokens, self._kv.tokens, num_tokens, BLOCK=256
        )
        planned = self._planned
        if planned is not None and planned.high - planned.low < num_tokens:
            short = positions.clone()
            short[planned.low : planned.high] = -1
        nothing = self._columns[0, :0]
        batch = CudaBatch(
            tokens=tokens,
            positions=positions,
            slots=slots,
            starts=nothing,
            contexts=nothing,
            tables=self._tables,
            num_decodes=0,
            max_context=0,
            logit_rows=nothing,
            table_rows=table_rows,
            tiling=cut,
            tiles=tiles,
            short_positions=short[:num_short],
            planned=planned,
        )
        return self._model.hidden(batch, self._kv)

    def _choose(self, hidden: Tensor, num_samples: int) -> tuple[Tensor, Tensor]:
        """(logits, tokens) of the samples, the likeliest each; -1 where logits are not numbers."""
        _, _, _, _, _, logit_rows, sample_rows, _ = self._columns[:, :num_samples]
        wanted = hidden if len(hidden) == num_samples == 1 else hidden.index_select(0, logit_rows)
        logits = self._model.logits(wanted)
        tokens = torch.empty(num_samples, dtype=torch.int64, device=self._device)
        likeliest_kernel[(num_samples,)](
            logits, sample_rows, tokens, self._last, logits.shape[1], len(self._last) - 1, TILE=_TILE, num_warps=32
        )
        return logits, tokens


@contextmanager
def _beside(stream: torch.cuda.Stream, side: torch.cuda.Stream) -> Iterator[None]:
    """On another stream, between what the one was told before and what it is told afterwards."""
    side.wait_stream(stream)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        stream.wait_stream(side)


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """What `torch.cuda.graph` does, but torch keeps the memory that it holds: the next step would have to get it again,
    and `measure` has left room for both."""
    torch.cuda.synchronize()
    graph.capture_begin(pool=pool)
    try:
        yield
    finally:
        graph.capture_end()


def _wait() -> None:
    """Until nothing of a step that failed is under way: nobody collects it, and its buffers go to the next. Where the
    device itself is lost this fails too, so that the engine ends and is started again."""
    event = torch.cuda.Event()
    with waiting():
        event.record()
        event.synchronize()


def _likely_keys(max_decodes: int, max_model_len: int, has_groups: bool, exact: bool = False) -> list[Key]:
    """Decodes of any number, short contexts first."""
    rungs = ladder(max_decodes)
    rungs = tuple(rung for rung, last in zip(rungs, (0, *rungs), strict=False) if last < max_decodes)
    longest = _power_of_two(min(max_model_len, _LIKELY_CONTEXT))
    contexts = [1 << power for power in range(longest.bit_length())]
    cuts = [(rung, tiling(rung, context, has_groups, exact)) for context in contexts for rung in rungs]
    return [(rung, cut, rung) for rung, cut in dict.fromkeys(cuts)]


def _columns(memory: Tensor, count: int) -> Tensor:
    """With at least so many rows."""
    count = _aligned(count)
    return memory[: NUM_COLUMNS * count].view(NUM_COLUMNS, count)


def _aligned(count: int) -> int:
    """So that every column begins at a multiple of 16 bytes: Triton compiles a kernel again for one that does not."""
    return -(-count // 4) * 4


def _power_of_two(count: int) -> int:
    """The least that is not smaller."""
    return 1 << max(0, count - 1).bit_length()


def _is_scored(chunk: Chunk) -> bool:
    """Whether it predicts prompt tokens whose scores are wanted."""
    request = chunk.request
    return request.params.prompt_logprobs is not None and chunk.start + 1 < len(request.prompt)


def _sampled(plan: StepPlan) -> list[RequestId]:
    """Who takes a token from the step, in order."""
    return [request.id for chunk in plan.chunks for request in chunk.samples]


def _sent_back(measured: Tensor | None) -> Tensor | None:
    """On its way into pinned memory."""
    if measured is None:
        return None
    return on_host(measured.shape, measured.dtype, measured.device).copy_(measured, non_blocking=True)


def _scores(step: _Step, tokens: list[int]) -> dict[RequestId, TokenScore]:
    if step.asks is None or step.measured is None:
        return {}
    rows = step.asks.scored.tolist()
    scores = told(step.measured, [tokens[i] for i in rows], step.asks.num_top)
    requests = _sampled(step.plan)
    return {requests[i]: score for i, score in zip(rows, scores, strict=True)}
