"""The launches of a step: from its columns on the device to logits and their argmax.

Always: nothing here waits for the device or reads from it, so that a step can be captured. Sampled tokens stay on the
device for the next step.
"""

from dataclasses import replace

import torch
import triton
from torch import Tensor

from chairlift.runner.cuda.adapters.slots import CudaSlots
from chairlift.runner.cuda.adapters.weight import adapted
from chairlift.runner.cuda.attention.flashinfer_planner import FlashPlan
from chairlift.runner.cuda.attention.tiling import Tiling
from chairlift.runner.cuda.sampling.argmax import argmax_kernel
from chairlift.runner.cuda.sampling.penalties import resolve_tokens_kernel
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.graph_key import GraphKey
from chairlift.runner.cuda.step.memory import StepMemory
from chairlift.runner.cuda.step.states import StateLayout
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder, PagedModel

_REMEMBERED = 256  # tokens that one program looks up
_TILE = 16384  # logits that are looked at in one go


class Forward:
    def __init__(
        self, model: PagedModel, kv: KvCache, memory: StepMemory, slots: CudaSlots | None = None,
        states: StateLayout | None = None,
    ) -> None:  # fmt: skip
        """slots: where rows may have adapters."""
        self._states = states
        self._model = model
        self._adapted, self._slots = model, slots
        if slots is not None:
            assert isinstance(model, Decoder)
            self._adapted = adapted(model, slots)
        self._kv = kv
        self._memory = memory

    def run(self, key: GraphKey, planned: FlashPlan | None) -> tuple[Tensor, Tensor]:
        """A step that is captured or could be -> (logits, tokens) of its samples."""
        rows, shape = self.logit_rows(key.num_samples), (key.num_tokens, key.num_short, key.tiling, planned)
        if key.is_cut:
            return self.choose(self.hidden(*shape, rows, key.has_adapters))
        hidden = self.hidden(*shape, has_adapters=key.has_adapters)
        return self.choose(hidden if len(hidden) == 1 else hidden.index_select(0, rows))

    def logit_rows(self, num_samples: int) -> Tensor:
        """Of each sample: the row with its logits."""
        _, _, _, _, _, logit_rows, _, _ = self._memory.columns[:, :num_samples]
        return logit_rows

    def hidden(
        self, num_tokens: int, num_short: int, tiling: Tiling, planned: FlashPlan | None,
        logit_rows: Tensor | None = None, has_adapters: bool = False,
    ) -> Tensor:  # fmt: skip
        """What the head reads, of these rows, or of every token; num_short: rows in front that no tile answers."""
        columns, last = self._memory.columns, self._memory.last
        known, refs, positions, slots, table_rows, _, _, short = columns[:, :num_tokens]
        tokens = torch.empty(num_tokens, dtype=torch.int64, device=last.device)
        resolve_tokens_kernel[(triton.cdiv(num_tokens, _REMEMBERED),)](
            known, refs, slots, last, tokens, self._kv.tokens, num_tokens, BLOCK=_REMEMBERED
        )
        tiles = self._memory.tiles if len(self._memory.tiles) else None
        batch = CudaBatch.of(
            tokens, positions, slots, self._memory.tables, table_rows, tiling, short[:num_short], tiles, planned,
            logit_rows,
        )  # fmt: skip
        views = [
            replace(batch, slots=own, tables=tables)
            for own, tables in zip(self._memory.view_slots[:, :num_tokens], self._memory.view_tables, strict=True)
        ]
        if self._states is not None:
            words = self._memory.spans, self._memory.units, self._memory.writes, self._memory.is_single
            views += [
                replace(batch, tables=tables, states=self._states.of_group(group, *words))
                for group, tables in enumerate(self._memory.state_tables)
            ]
        model = self._model
        if has_adapters and self._slots is not None:
            model = self._adapted
        return model.hidden(replace(batch, views=tuple(views)) if views else batch, self._kv)

    def choose(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """What the head reads of each sample -> (logits, their argmax); -1 where logits are not numbers."""
        num_samples = len(hidden)
        _, _, _, _, _, _, sample_rows, _ = self._memory.columns[:, :num_samples]
        logits = self._model.logits(hidden)
        last = self._memory.last
        tokens = torch.empty(num_samples, dtype=torch.int64, device=last.device)
        argmax_kernel[(num_samples,)](
            logits, sample_rows, tokens, last, logits.shape[1], len(last) - 1, TILE=_TILE, num_warps=32
        )
        return logits, tokens
