"""The device's part of a step: from a step input to its tokens, launched without waiting.

    step input -> block moves -> step memory -> forward, or the graph of its key -> launched step
    launched step -> sampling -> in flight

A step travels in one copy and runs as a captured graph, padded to a rung of a ladder, unless it is large, scores a
prompt, has prompts that FlashInfer attends to, or very many short chunks. Only steps that score a prompt or have a
filter without a kernel wait.

Always: step inputs are carried out in order on one stream. Knows nothing of plans or requests.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chairlift.core.limits import Limits
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.adapters.slots import CudaSlots
from chairlift.runner.cuda.attention.flashinfer import FlashKernels
from chairlift.runner.cuda.attention.flashinfer_planner import FlashPlanner
from chairlift.runner.cuda.experts.experts import kernel_kinds
from chairlift.runner.cuda.ops import CudaOps, kernel_rows
from chairlift.runner.cuda.sampling import exact_scores
from chairlift.runner.cuda.sampling.sampler import CudaSampler, mask_rows
from chairlift.runner.cuda.step.columns import Words
from chairlift.runner.cuda.step.forward import Forward
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS, GraphKey, GraphKeys
from chairlift.runner.cuda.step.graphs import Graphs
from chairlift.runner.cuda.step.in_flight import InFlight, LaunchedStep, read_back
from chairlift.runner.cuda.step.input import StepInput
from chairlift.runner.cuda.step.memory import StepMemory, pinned_ring
from chairlift.runner.cuda.step.states import StateLayout
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import PagedModel
from chairlift.runner.sampling.scores import measure
from chairlift.runner.torch.step_result import Scores, score_prompts

OnLogits = Callable[[Tensor], None]  # gets logits, a row for each sample, before they are changed


class DevicePart:
    def __init__(
        self, model: PagedModel, kv: KvCache, device: torch.device, limits: Limits, flash: FlashKernels | None = None,
        exact: bool = False, max_graphs: int = MAX_GRAPHS, adapters: AdapterStore[Any] | None = None,
    ) -> None:  # fmt: skip
        """exact: the model's operations are. max_graphs: captured steps that are kept. adapters: of the host."""
        width = -(-limits.max_model_len // kv.block_size)
        self._model = model
        if isinstance(model.ops, CudaOps):
            model.ops.choose_kernels(model.attentions, model.dtype, kv.block_size, width, device)
        self._measure = exact_scores.measure if exact else measure
        self._kv = kv
        self._device = device
        self._keys = GraphKeys(limits, any(spec.has_groups for spec in model.config.attentions), exact)
        most = max(limits.max_step_tokens, self._keys.max_tokens)
        states = StateLayout.of(kv.kinds, kv.num_groups, most, limits.max_running)
        width = max(width, states.table_width if states else 0)
        self.num_rows, self.table_width = 2 * limits.max_running + 15, width  # for requests
        num_views = sum(kv.num_groups) - (states.num_groups if states else 0)
        self._memory = memory = StepMemory(
            self.num_rows + 1, width * kv.fit.pages_a_block, most, device, num_views, states
        )  # fmt: skip
        self._planner = None if flash is None else FlashPlanner(flash, memory.tables, most, self._keys.max_decodes)
        self.slots: CudaSlots | None = None
        if adapters is not None:
            num_slots, max_rows = limits.num_adapter_slots, max(most, self._keys.max_samples)
            self.slots = CudaSlots(adapters, model.config, model.dtype, device, num_slots, max_rows)
        self._forward = Forward(self._model, kv, memory, self.slots, states)
        self._graphs = Graphs(self._forward, memory, self._keys, limits.vocab_size, max_graphs, has_trials=exact)
        self._sampling = CudaSampler(memory.tables, kv.tokens, memory.last, self._measure)
        self._pinned = pinned_ring(most, torch.int64, device)  # for sampled tokens

    @property
    def rungs(self) -> tuple[int, ...]:
        """Numbers of rows that steps are padded to."""
        return self._keys.ladder

    def launch(self, step: StepInput, uses_graphs: bool, on_logits: OnLogits | None = None) -> LaunchedStep:
        """All that the step takes before tokens are chosen."""
        self._kv.move_blocks(step.swap_outs, step.swap_ins, step.copies)
        return self._compute(step, uses_graphs, on_logits)

    def finish(self, launched: LaunchedStep, masks: Words | None = None) -> InFlight:
        """Chooses the tokens. masks: which of them may come in structured rows, [R, words]; the host makes them while
        the device computes what was launched. Nothing may be launched in between."""
        measured = self._sampling.choose(launched.step, launched.logits, launched.tokens, masks)
        return read_back(launched, measured, next(self._pinned))

    def dry_run(self, step: StepInput) -> None:
        """Launches all that the step takes but block moves, and the mask of structured rows, without a result."""
        launched = self._compute(step, uses_graphs=False)
        logits, tokens = launched.logits, launched.tokens
        self._sampling.choose(step, logits, tokens)
        mask_rows(logits, tokens[:1].int(), tokens.new_empty(1, -(-logits.shape[1] // 32), dtype=torch.int32))

    def _compute(self, step: StepInput, uses_graphs: bool, on_logits: OnLogits | None = None) -> LaunchedStep:
        planner = self._planner
        key = None
        if not len(step.prompt_spans) and (planner is None or planner.can_capture(step)):
            max_context = step.max_context if planner is None else 1  # FlashInfer splits as it likes
            num_tiles = len(step.tiles) or not step.states.is_single
            key = self._keys.of(step.num_tokens, step.num_short, max_context, num_tiles, step.num_samples)
        has_adapters = len(step.adapters) > 0
        if key is not None and has_adapters:
            key = key._replace(has_adapters=True)
        self._memory.send(step, key)
        if has_adapters:
            self._send_adapters(step, key)
        planned = planner.plan(step, key and key.num_tokens) if planner else None
        prompt_scores: list[Scores] = []
        if key is None:
            tiling = self._keys.tiling_of(step.num_tokens, step.num_short, step.max_context, len(step.tiles) > 0)
            rows = self._forward.logit_rows(step.num_samples)
            if len(step.prompt_spans):  # their scores take all rows
                hidden = self._forward.hidden(
                    step.num_tokens, step.num_short, tiling, planned, has_adapters=has_adapters
                )
                prompt_scores = score_prompts(step.prompt_targets(), hidden, self._model, self._measure)
                hidden = hidden.index_select(0, rows)
            else:
                hidden = self._forward.hidden(step.num_tokens, step.num_short, tiling, planned, rows, has_adapters)
            logits, tokens = self._forward.choose(hidden)
        else:
            logits, tokens = (self._graphs if uses_graphs else self._forward).run(key, planned)
        if on_logits is not None:
            on_logits(logits[: step.num_samples])
        return LaunchedStep(step, logits, tokens, prompt_scores)

    def _send_adapters(self, step: StepInput, key: GraphKey | None) -> None:
        assert self.slots is not None
        is_cut = key.is_cut if key is not None else not len(step.prompt_spans)
        shape: StepInput | GraphKey = step if key is None else key
        logit_rows = step.columns.logit_rows if is_cut else None
        self.slots.send(step.adapters, shape.num_tokens, logit_rows, shape.num_samples)

    def capture_one(self) -> bool:
        """Captures one more of the likely steps; False when there is none."""
        return self._planner is None and self._graphs.capture_one()

    def dry_run_likely(self) -> None:
        """Launches what `capture_one` captures, for each tiling: steps of one row and of few, which have kernels of
        their own, one of many, and one with prompts; with adapters and without; and those of long contexts."""
        keys = (self._keys.largest, *self._keys.likely, *self._keys.unlikely)
        mixtures = [mixture for layer in self._model.config.layers if (mixture := layer.feed_forward.experts)]
        kinds = {
            (
                key.kernel_tiling,
                kernel_rows(key.num_tokens),
                kernel_kinds(key.num_tokens, mixtures),
                key.num_tiles > 0,
                key.has_adapters,
            ): key
            for key in keys
        }
        for key in kinds.values():
            with self._memory.padding(key):
                self._forward.run(key, None)
