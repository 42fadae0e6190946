"""Rows whose logits nobody wants end with the last layer's keys and values."""

import random
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch

from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.ops import Batch
from chairlift.runner.torch.batching import batch_of
from unit.runner.twins import CPU, FAMILIES, chunk, make_twin, random_tokens, request, step


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_wanted_rows_come_out_as_among_all(tmp_path: Path, family: str) -> None:
    decoder, draw = make_twin(tmp_path, family).decoder(), random.Random(family)
    for _ in range(5):
        counts = [draw.randint(1, 12) for _ in range(draw.randint(1, 4))]
        batch = of_prompts(counts)
        rows = torch.tensor([sum(counts[: i + 1]) - 1 for i in range(len(counts)) if draw.random() < 0.7]).long()
        (some, kv), (every, other) = hidden(decoder, batch, rows), hidden(decoder, batch, None)
        assert torch.allclose(some, every[rows], atol=1e-5) and len(some) == len(rows)
        assert all(torch.equal(*both) for both in zip(chain(*kv.state), chain(*other.state), strict=True))


def of_prompts(counts: list[int]) -> Batch:
    chunks = [
        chunk(tokens := random_tokens(count, seed), 0, count, [seed], request(tokens, id=seed))
        for seed, count in enumerate(counts)
    ]
    return batch_of(step(chunks), 16, {}, CPU)


def hidden(decoder: Decoder, batch: Batch, rows: torch.Tensor | None) -> tuple[torch.Tensor, KvCache]:
    kv = KvCache(decoder.config, 4, 16, torch.float32, CPU)
    with torch.inference_mode():
        return decoder.hidden(replace(batch, logit_rows=rows), kv), kv
