"""Attention on Ascend, whose operations are stood in for by plain ones that do what their documentation says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.ops import Batch

SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3, rotation=None)
BLOCK = 4


def batch() -> Batch:
    """A decode at position 5, a chunk of 3 after 4 others, a whole prompt of 6, a decode-like last chunk of 1 of 1."""
    spans, tables = [(5, 1), (4, 3), (0, 6), (0, 1)], [[3, 0], [5, 2], [1, 7], [4, 0]]
    counts = [count for _, count in spans]
    positions = np.concatenate([np.arange(start, start + count) for start, count in spans])
    owners = np.repeat(np.arange(len(spans)), counts)
    blocks = np.array(tables)[owners, positions // BLOCK]
    return Batch(
        tokens=torch.zeros(len(positions), dtype=torch.int64),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(blocks * BLOCK + positions % BLOCK),
        starts=torch.tensor([0, *np.cumsum(counts).tolist()], dtype=torch.int32),
        contexts=torch.tensor([start + count for start, count in spans], dtype=torch.int32),
        tables=torch.tensor(tables, dtype=torch.int32),
        num_decodes=1,
        max_context=7,
        logit_rows=None,
    )


def softmax(scores: Any) -> Any:
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def stored(key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any) -> None:
    from mindspore import Tensor

    for cache, rows in ((key_cache, key), (value_cache, value)):
        content = cache.asnumpy().copy()
        content.reshape(-1, *content.shape[2:])[slot_mapping.asnumpy()] = rows.asnumpy()
        cache.set_data(Tensor(content))


class Paged:
    def __init__(self, head_num: int, scale_value: float, kv_head_num: int) -> None:
        self.scale, self.group = scale_value, head_num // kv_head_num

    def __call__(self, query: Any, key_cache: Any, value_cache: Any, block_tables: Any, context_lens: Any) -> Any:
        from mindspore import Tensor

        rows = []
        for q, table, length in zip(query.asnumpy(), block_tables.asnumpy(), context_lens.asnumpy(), strict=True):
            k, v = (
                cache.asnumpy()[table].reshape(-1, *cache.shape[2:])[:length].repeat(self.group, axis=1)
                for cache in (key_cache, value_cache)
            )
            rows.append(np.einsum("hl,lhd->hd", softmax(np.einsum("hd,lhd->hl", q, k) * self.scale), v))
        return Tensor(np.stack(rows))


def flash(query: Any, key: Any, value: Any, head_num: int, *, attn_mask: Any, scalar_value: float) -> Any:
    """The layout BSH; a mask of what is left out."""
    from mindspore import Tensor

    width = query.shape[-1] // head_num
    q, k, v = (each.asnumpy()[0].reshape(each.shape[1], -1, width) for each in (query, key, value))
    k, v = (each.repeat(head_num // each.shape[1], axis=1) for each in (k, v))
    scores = np.einsum("qhd,lhd->hql", q, k) * scalar_value
    scores[:, attn_mask.asnumpy()] = -np.inf
    return Tensor(np.einsum("hql,lhd->qhd", softmax(scores), v).reshape(query.shape))


def test_its_operations_give_what_the_plain_ones_give(monkeypatch: pytest.MonkeyPatch) -> None:
    import fakes.worlds.mindspore  # noqa: F401  starts it
    from chairlift.runner.mindspore import ascend
    from chairlift.runner.mindspore.attention import PlainAttention
    from chairlift.runner.mindspore.kv_cache import MindSporeCache
    from chairlift.runner.mindspore.weight import put

    monkeypatch.setattr(ascend, "_store", stored)
    monkeypatch.setattr(ascend, "PagedAttention", Paged)
    monkeypatch.setattr(ascend.ops, "flash_attention_score", flash)
    step, rng, outputs = batch(), np.random.default_rng(1), []
    before = rng.standard_normal((8, BLOCK, SPEC.num_kv_heads, SPEC.head_dim)).astype(np.float32)
    q, k, v = (rng.standard_normal((11, num, SPEC.head_dim)).astype(np.float32) for num in (4, 2, 2))
    for kind in (ascend.AscendAttention, PlainAttention):
        attention = kind(SPEC, BLOCK)
        cache = MindSporeCache([attention.shape(8)], 8, BLOCK, "float32")
        as_stored = before if kind is ascend.AscendAttention else before.swapaxes(1, 2)
        for memory in (cache.keys[0], cache.values[0]):
            memory.set_data(put(np.ascontiguousarray(as_stored).reshape(memory.shape)))
        flat = put(q.reshape(len(q), -1))
        new = (put(each.reshape(attention.stored)) for each in (k, v))
        attended = attention.attend(flat, *new, cache.keys[0], cache.values[0], attention.layout(step))
        outputs.append(attended.asnumpy())
    np.testing.assert_allclose(*outputs, atol=1e-5)


@pytest.mark.parametrize("changed", [{"window": 4}, {"cap": 5.0}])
def test_windows_and_caps_are_refused(changed: dict[str, Any]) -> None:
    import fakes.worlds.mindspore  # noqa: F401  starts it
    from chairlift.runner.mindspore.ascend import AscendAttention

    with pytest.raises(InvalidConfig, match="no windows and no caps"):
        AscendAttention(replace(SPEC, **changed), BLOCK)
