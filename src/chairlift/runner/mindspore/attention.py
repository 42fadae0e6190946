"""Paged attention in MindSpore's plain operations, for any device that has them; run on a CPU.

    keys, values   [num_blocks * kv_heads * block_size, head_dim]: a row for each head of each slot
    row            (block * kv_heads + head) * block_size + offset

Always: a row that is not seen is one that is, masked, since memory beyond a context may hold what is no number. Knows
batches, nothing of requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ops
from numpy.typing import NDArray

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.mindspore.weight import put
from chairlift.runner.ops import Batch

_MAX_GATHERED = 1 << 26  # values of keys that decodes gather at once
_MAX_QUERIES = 512  # rows of a prompt chunk at once: bounds the scores
_UNSEEN = np.float32(-1e30)  # added to a score, whose exponential is then 0

_update, _times, _times_rows = ops.ScatterUpdate(), ops.BatchMatMul(), ops.BatchMatMul(transpose_b=True)


@dataclass(frozen=True, slots=True)
class Group:
    """Queries that are computed together: one each of several requests, or several of one."""

    queries: slice  # of the step's
    rows: Any  # int32 [B, kv_heads, L] of decodes, [kv_heads, L] of a chunk
    mask: Any  # what is added to scores: [B, 1, 1, L] of decodes, [queries * group, L] of a chunk
    is_chunk: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a step's keys and values go, and what its queries see; the same for all layers with such heads."""

    slots: Any  # int32 [T * kv_heads]
    groups: list[Group]


class PlainAttention:
    """Of layers with such heads."""

    def __init__(self, spec: AttentionSpec, block_size: int) -> None:
        self._spec, self._block_size = spec, block_size
        self.stored: tuple[int, ...] = (-1, spec.head_dim)
        self._decodes, self._chunk = _functions(spec)

    def shape(self, num_blocks: int) -> tuple[int, ...]:
        return num_blocks * self._spec.num_kv_heads * self._block_size, self._spec.head_dim

    def layout(self, batch: Batch) -> Layout:
        slots = batch.slots.numpy()
        rows = self._rows(slots // self._block_size, slots % self._block_size)
        return Layout(put(rows.T.reshape(-1)), list(self._groups(batch)))

    def attend(self, q: Any, k: Any, v: Any, keys: Any, values: Any, layout: Layout) -> Any:
        _update(keys, layout.slots, k)
        _update(values, layout.slots, v)
        if len(layout.groups) == 1:
            return self._attend(q, keys, values, layout.groups[0])
        return ops.cat([self._attend(q[group.queries], keys, values, group) for group in layout.groups])

    def _attend(self, q: Any, keys: Any, values: Any, group: Group) -> Any:
        # Parameters stay outside of compiled functions, which would be compiled again for each.
        seen = ops.gather(keys, group.rows, 0), ops.gather(values, group.rows, 0)
        return (self._chunk if group.is_chunk else self._decodes)(q, *seen, group.mask)

    def _groups(self, batch: Batch) -> Iterator[Group]:
        starts, contexts = batch.starts.tolist(), batch.contexts.numpy()
        spec, tables = self._spec, batch.tables.numpy()
        most = max(1, _MAX_GATHERED // (batch.max_context * spec.num_kv_heads * spec.head_dim))
        for low in range(0, batch.num_decodes, most):
            high = min(low + most, batch.num_decodes)
            rows, seen = self._context(tables[low:high], contexts[low:high] - 1, 1)
            yield Group(slice(low, high), put(rows), _mask(seen[:, None]), is_chunk=False)
        for r in range(batch.num_decodes, len(contexts)):
            for low in range(starts[r], starts[r + 1], _MAX_QUERIES):
                high = min(low + _MAX_QUERIES, starts[r + 1])
                past = contexts[r : r + 1] - (starts[r + 1] - low)
                rows, seen = self._context(tables[r : r + 1], past, high - low)
                # The heads that share keys are rows beside each other.
                shown = seen[0].repeat(spec.num_heads // spec.num_kv_heads, axis=0)
                yield Group(slice(low, high), put(rows[0]), _mask(shown), is_chunk=True)

    def _context(
        self, tables: NDArray[np.int32], past: NDArray[np.int32], count: int
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """For `count` queries after `past` positions of each table: rows [B, kv_heads, L], seen [B, count, L]."""
        window, end = self._spec.window, past[:, None] + count
        first = np.maximum(0, past[:, None] - window + 1) if window else np.zeros_like(end)
        at = first + np.arange(int((end - first).max()))  # [B, L]
        own = (past[:, None] + np.arange(count))[:, :, None]  # [B, count, 1]
        seen = at[:, None] <= own
        if window:
            seen &= at[:, None] > own - window
        at = np.minimum(at, end - 1)
        blocks = np.take_along_axis(tables, at // self._block_size, axis=1)
        return self._rows(blocks, at % self._block_size).swapaxes(0, 1), seen

    def _rows(self, blocks: NDArray[Any], offsets: NDArray[Any]) -> NDArray[np.int32]:
        """[...] -> [kv_heads, ...]"""
        num = self._spec.num_kv_heads
        heads = np.arange(num).reshape(num, *[1] * blocks.ndim)
        return ((blocks * num + heads) * self._block_size + offsets).astype(np.int32)


def _mask(seen: NDArray[np.bool_]) -> Any:
    return put(np.where(seen, np.float32(0.0), _UNSEEN))


def _functions(spec: AttentionSpec) -> tuple[Any, Any]:
    """Attention of decodes and of a chunk, compiled for any sizes."""
    num, width, scale, cap = spec.num_kv_heads, spec.head_dim, spec.scale, spec.cap
    group = spec.num_heads // num
    whole = spec.num_heads * width

    def weights(q: Any, k: Any, mask: Any) -> Any:
        scores = _times_rows(q, k) * scale
        if cap:
            scores = ops.tanh(scores / cap) * cap
        return ops.softmax(scores + mask, -1)

    def decodes(q: Any, k: Any, v: Any, mask: Any) -> Any:
        """k, v [B, kv_heads, L, head_dim]"""
        shares = weights(q.reshape((-1, num, group, width)), k, mask)  # [B, kv_heads, group, L]
        return _times(shares, v).reshape((-1, whole))

    def chunk(q: Any, k: Any, v: Any, mask: Any) -> Any:
        """k, v [kv_heads, L, head_dim]"""
        grouped = q.reshape((-1, num, group, width)).transpose((1, 0, 2, 3)).reshape((num, -1, width))
        out = _times(weights(grouped, k, mask), v)  # [kv_heads, queries * group, head_dim]
        return out.reshape((num, -1, group, width)).transpose((1, 0, 2, 3)).reshape((-1, whole))

    return ms.jit(decodes, dynamic=1), ms.jit(chunk, dynamic=1)
