"""Gated delta nets on a GPU: as near to float64 as their type allows, and the same bits however a text is cut."""

import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from chairlift.models.mixers.delta_net import DeltaNetSpec
from fakes.delta_nets import C, Cache, Layer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

CUDA = torch.device("cuda")
SPEC = DeltaNetSpec(num_key_heads=4, num_heads=12, key_dim=128, value_dim=128, num_taps=4)
PAGE = (4, C, 256)


@pytest.mark.parametrize("is_tiled", [False, True])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.bfloat16, 8e-3), (torch.float16, 1e-3)])
def test_a_text_as_the_mixer_in_torchs_operations_has_it(dtype: torch.dtype, most: float, is_tiled: bool) -> None:
    layer = Layer(replace(SPEC, is_tiled=is_tiled), PAGE, dtype, CUDA)
    text = layer.text(1000, 1)
    expected = layer.expected(text)
    found = (layer.whole(text).double() - expected).norm() / expected.norm()
    assert found < most, found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sizes", [(1,), (4,), (16,), (1, 2, 3, 5, 17, 40, 200)])
def test_a_text_in_pieces_has_the_bits_of_the_whole(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    """Beside others that are cut elsewhere, and after drafts that were wrong."""
    layer = Layer(SPEC, PAGE, dtype, CUDA)
    ends = {0: 150, 1: 333, 2: 64, 3: 49}
    texts = {id: layer.text(end, id) for id, end in ends.items()}
    cache, draw, done = Cache(layer, len(ends)), random.Random(0), dict.fromkeys(ends, 0)
    found: dict[int, list[Tensor]] = {id: [] for id in ends}
    while cuts := {id: (low, min(low + draw.choice(sizes), ends[id])) for id, low in done.items() if low < ends[id]}:
        if draw.random() < 0.3:
            wrong = {}
            for id, (low, _) in cuts.items():
                wrong[id] = tuple(torch.cat((part[: low + 1], part[low + 1 :].flip(0))) for part in texts[id])
            cache.step(wrong, {id: (low, min(low + 4, ends[id])) for id, (low, _) in cuts.items()})
        for id, rows in cache.step(texts, cuts).items():
            found[id].append(rows)
        done |= {id: high for id, (_, high) in cuts.items()}
    for id, text in texts.items():
        assert torch.equal(torch.cat(found[id]), layer.whole(text))
