"""Random declarations of models on MindSpore against the independent reference, in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from chairlift.runner.torch.batching import batch_of
from fakes.declarations import DrawnTensors, plain_declaration
from unit.runner.test_declarations import BLOCK, STEPS, TEXTS, reference
from unit.runner.twins import chunk, request, shuffled_tables, step

SEEDS = range(5)
CPU = torch.device("cpu")


def logits(decoder: Any) -> Iterator[tuple[int, int, torch.Tensor]]:
    """(text, position, logits there) of every step."""
    tables = shuffled_tables([len(text) for text in TEXTS], BLOCK, 24)
    kv = decoder.new_cache(24)
    requests = [request(text, id=i) for i, text in enumerate(TEXTS)]
    done = [0] * len(TEXTS)
    for counts in STEPS:
        plan = step([chunk(TEXTS[i], done[i], n, tables[i], requests[i]) for i, n in enumerate(counts) if n])
        done = [before + n for before, n in zip(done, counts, strict=True)]
        with torch.inference_mode():
            batch = batch_of(plan, BLOCK, {}, CPU)
            rows = decoder.logits(decoder.hidden(batch, kv))
        yield from ((c.request.id, done[c.request.id] - 1, row) for c, row in zip(plan.chunks, rows, strict=True))


def check(seed: int) -> None:
    from fakes.worlds.mindspore import decoder

    config = plain_declaration(seed)
    wanted, count = reference(config, torch.float64), 0
    made = decoder(config, DrawnTensors(), torch.float64, BLOCK)
    for text, position, row in logits(made):
        # MindSpore rounds numbers that are no tensors, such as a scale, to float32.
        np.testing.assert_allclose(row.numpy(), wanted[text][position], atol=1e-7, rtol=1e-6)
        count += 1
    assert count == sum(bool(n) for counts in STEPS for n in counts)


@pytest.mark.parametrize("seed", SEEDS)
def test_logits_are_those_of_the_reference_in_chunks_and_decodes(seed: int) -> None:
    check(seed)


def test_long_chunks_and_many_decodes_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    import chairlift.runner.mindspore.attention as attention

    monkeypatch.setattr(attention, "_MAX_QUERIES", 4)
    monkeypatch.setattr(attention, "_MAX_GATHERED", 1)
    check(3)


def test_these_declarations_differ_in_what_layers_differ_in() -> None:
    layers = [layer for seed in SEEDS for layer in plain_declaration(seed).layers]
    for name in ("num_kv_heads", "head_dim", "window", "cap", "has_bias", "has_qk_norm"):
        assert len({getattr(layer.attention, name) for layer in layers}) > 1, name
    assert len({layer.feed_forward.activation for layer in layers}) > 1
    assert len({(layer.has_norm_before, layer.has_norm_after) for layer in layers}) == 3
    assert any(layer.attention.rotation is None for layer in layers)
    assert len({layer.residual_factor for layer in layers}) > 1
