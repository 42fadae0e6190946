"""Paged attention in the operations that MindSpore has for Ascend alone. Written by their documentation: never run.

    keys, values   [num_blocks, block_size, kv_heads, head_dim]

Prompts from their first token on go through flash attention; all other rows through paged attention, each as a
context of its own length. Knows batches, nothing of requests.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from mindspore import ops
from mindspore.ops.auto_generate import PagedAttention, ReshapeAndCache

from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.mindspore.weight import put
from chairlift.runner.ops import Batch

_store = ReshapeAndCache()


@dataclass(frozen=True, slots=True)
class Layout:
    slots: Any  # int32 [T]
    tables: Any  # int32 [T, W]: the block table of each row
    contexts: Any  # int32 [T]: how many positions each row sees
    prompts: list[tuple[slice, Any]]  # rows of prompts from their first token on, and what each of them does not see


class AscendAttention:
    """Of layers with such heads."""

    def __init__(self, spec: AttentionSpec, block_size: int) -> None:
        if spec.window or spec.cap:
            raise InvalidConfig(
                "device mindspore:ascend: its attention has no windows and no caps, which this model needs; "
                "use --device cpu"
            )
        self._spec, self._block_size = spec, block_size
        self.stored: tuple[int, ...] = (-1, spec.num_kv_heads, spec.head_dim)
        self._paged = PagedAttention(spec.num_heads, spec.scale, spec.num_kv_heads)

    def shape(self, num_blocks: int) -> tuple[int, ...]:
        return num_blocks, self._block_size, self._spec.num_kv_heads, self._spec.head_dim

    def layout(self, batch: Batch) -> Layout:
        starts, contexts = batch.starts.tolist(), batch.contexts.tolist()
        counts = np.diff(starts)
        whole = [r for r in range(batch.num_decodes, len(contexts)) if contexts[r] == counts[r]]
        return Layout(
            put(batch.slots.int().numpy()),
            put(np.repeat(batch.tables.numpy(), counts, axis=0)),
            put(batch.positions.int().numpy() + 1),
            [(slice(starts[r], starts[r + 1]), put(~np.tri(counts[r], dtype=np.bool_))) for r in whole],
        )

    def attend(self, q: Any, k: Any, v: Any, keys: Any, values: Any, layout: Layout) -> Any:
        _store(k, v, keys, values, layout.slots)
        spec, pieces, done = self._spec, [], 0
        for rows, unseen in layout.prompts:
            pieces.append(self._in_pages(q, keys, values, layout, slice(done, rows.start)))
            own = (each[rows].reshape((1, rows.stop - rows.start, -1)) for each in (q, k, v))
            out = ops.flash_attention_score(*own, spec.num_heads, attn_mask=unseen, scalar_value=spec.scale)
            pieces.append(out.reshape((rows.stop - rows.start, -1)))
            done = rows.stop
        pieces.append(self._in_pages(q, keys, values, layout, slice(done, len(q))))
        return ops.cat([piece for piece in pieces if len(piece)])

    def _in_pages(self, q: Any, keys: Any, values: Any, layout: Layout, rows: slice) -> Any:
        if rows.start == rows.stop:
            return q[rows]
        heads = q[rows].reshape((-1, self._spec.num_heads, self._spec.head_dim))
        out = self._paged(heads, keys, values, layout.tables[rows], layout.contexts[rows])
        return out.reshape((rows.stop - rows.start, -1))
