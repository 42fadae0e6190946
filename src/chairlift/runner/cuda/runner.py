"""`CudaRunner`: carries out plans on a GPU without waiting for it.

    plan -> layout -> step memory -> forward, or the graph of its key -> sampling -> under way -> result

A step is laid out in pinned memory, travels in one copy, and runs as a captured graph where its shape allows: decodes
and short prompts, padded to a rung of a ladder. Tokens that a step samples stay on the device for the next one and come
back to the host beside it, so two steps are in flight and the GPU does not wait for Python. Long prompts run eagerly.
What requests ask beyond the likeliest token is done after the logits, on the device too (sampling.py). Only a step that
scores the tokens of a prompt waits.

Always: plans are carried out in order on one stream.
"""

from collections import deque

import numpy as np
import torch
import triton
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.plan import Chunk, StepPlan, StepResult
from chairlift.runner.answers import score_prompts
from chairlift.runner.cuda import exact_scores
from chairlift.runner.cuda.asks import Asks, StepAsks
from chairlift.runner.cuda.flash import Planned, Planner
from chairlift.runner.cuda.flash_kernels import FlashKernels
from chairlift.runner.cuda.forward import Forward
from chairlift.runner.cuda.graphs import Graphs
from chairlift.runner.cuda.keys import Keys
from chairlift.runner.cuda.layout import MAX_ROW_PAIRS, Layout, lay_out
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.rows import Rows
from chairlift.runner.cuda.sampling import Sampling
from chairlift.runner.cuda.step_memory import StepMemory
from chairlift.runner.cuda.under_way import Computed, PromptScores, UnderWay, WayBack, sampled
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.scores import measure
from chairlift.runner.to_device import to_device
from chairlift.runner.torch_runner import failure, waiting
from chairlift.runner.watch import LogitsSeen


class CudaRunner:
    depth = 2
    max_row_pairs = MAX_ROW_PAIRS

    def __init__(
        self, model: Decoder, kv: KvCache, device: torch.device, limits: Limits, flash: FlashKernels | None = None,
        exact: bool = False,
    ) -> None:  # fmt: skip
        """exact: of a model whose operations are."""
        if limits.max_drafts:
            raise InvalidConfig("drafts are not checked on a GPU")
        width = -(-limits.max_model_len // kv.block_size)
        self._model = model
        if isinstance(model.ops, CudaOps):
            attentions = [layer.attention for layer in model.layers]
            model.ops.settle(attentions, model.dtype, kv.block_size, width, device)
        self._measure = exact_scores.measure if exact else measure
        self._kv = kv
        self._device = device
        self._keys = Keys(limits, any(layer.attention.has_groups for layer in model.config.layers), exact)
        most = max(limits.max_step_tokens, self._keys.max_tokens)
        num_rows = 2 * limits.max_running + 16
        self._rows = Rows(num_rows - 1)  # the last is nobody's
        self._asks = Asks(num_rows)
        self._memory = memory = StepMemory(num_rows, width, most, device)
        self._planner = None if flash is None else Planner(flash, memory.tables, most, self._keys.max_tokens)
        self._forward = Forward(self._model, kv, memory)
        self._graphs = Graphs(self._forward, memory, self._keys.max_tokens, limits.vocab_size)
        self._sampling = Sampling(memory.tables, kv.tokens, memory.last, self._measure)
        self._way_back = WayBack(most, device)
        self._steps: deque[UnderWay] = deque()
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
        return self._steps.popleft().result()

    @torch.inference_mode()
    def prepare(self) -> bool:
        """Captures one more of the steps that are likely to come, between steps; False when there is none."""
        return self._planner is None and self._graphs.capture_one(self._keys.likely)

    def rehearse(self, plan: StepPlan) -> None:
        """Launches all that the plan takes and asks for no result: on a device without memory there is none."""
        self.uses_graphs = False
        layout = lay_out(plan, self._rows, self._kv.block_size)
        self._compute(plan, layout, self._asks.of(layout))

    def rehearse_likely(self) -> None:
        """The same for what `prepare` captures: of each cut one step of a single token, which has kernels of its own,
        and one of several."""
        for key in {(key.cut, key.num_tokens == 1): key for key in self._keys.likely}.values():
            with self._memory.padding(key.num_tokens):
                self._forward.run(key, None)

    def _launch(self, plan: StepPlan) -> UnderWay:
        self._kv.carry_out(plan)
        layout = lay_out(plan, self._rows, self._kv.block_size)
        asks = self._asks.of(layout)
        return self._way_back.send(plan, asks, layout.num_samples, self._compute(plan, layout, asks))

    def _compute(self, plan: StepPlan, layout: Layout, asks: StepAsks | None) -> Computed:
        prompt_scores: PromptScores = {}
        has_scored_prompt = any(_is_scored(chunk) for chunk in plan.chunks[plan.num_decodes :])
        num_padded = None if has_scored_prompt else self._rung(layout)
        self._memory.send(layout, num_padded)
        planned = self._planner.plan(layout, num_padded) if self._planner else None
        if num_padded is None:
            hidden = self._hidden(layout, planned)
            if has_scored_prompt:
                prompt_scores = score_prompts(plan, hidden, self._model, self._measure)
            logits, tokens = self._forward.choose(hidden, layout.num_samples)
        else:
            # FlashInfer splits as it likes.
            key = self._keys.of(num_padded, layout.num_samples, 1 if planned is not None else layout.max_context)
            logits, tokens = (self._graphs if self.uses_graphs else self._forward).run(key, planned)
        if self.logits_seen is not None:
            requests = sampled(plan)
            positions = [chunk.start + chunk.count - 1 for chunk in plan.chunks for _ in chunk.samples]
            self.logits_seen(requests, positions, logits[: len(requests)])
        measured = None if asks is None else self._sampling.choose(asks, logits, tokens)
        return Computed(tokens, measured, prompt_scores)

    def _rung(self, layout: Layout) -> int | None:
        """How many tokens the captured step has; None for one that is not captured."""
        if layout.tiles or (self._planner is not None and not self._planner.can_capture(layout)):
            return None
        return self._keys.rung(max(layout.num_tokens, layout.num_samples))

    def _hidden(self, layout: Layout, planned: Planned | None) -> Tensor:
        """Of a step that is not captured."""
        tiles = None
        if layout.tiles and planned is None:  # else FlashInfer answers them
            tiles = to_device(np.array(layout.tiles, np.int32), self._device)
        cut = self._keys.cut(layout.num_short, layout.max_context)
        return self._forward.hidden(layout.num_tokens, layout.num_short, cut, tiles, planned)


def _wait() -> None:
    """Until nothing of a step that failed is under way: nobody collects it, and its buffers go to the next. Where the
    device itself is lost this fails too, so that the engine ends and is started again."""
    event = torch.cuda.Event()
    with waiting():
        event.record()
        event.synchronize()


def _is_scored(chunk: Chunk) -> bool:
    """Whether it predicts prompt tokens whose scores are wanted."""
    request = chunk.request
    return request.params.prompt_logprobs is not None and chunk.start + 1 < len(request.prompt)
