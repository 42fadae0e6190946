"""Gated delta nets by Triton's interpreter, beside the mixer in torch's operations."""

import os
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from chairlift.core.ids import BlockId, RequestId
from chairlift.core.plan import Checkpoint
from chairlift.models.mixers.delta_net import DeltaNetSpec
from fakes.delta_nets import C, Cache, Layer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("ordered_dots"),
]

SPEC = DeltaNetSpec(num_key_heads=1, num_heads=2, key_dim=16, value_dim=16, num_taps=4)
SHORT = Layer(SPEC, (2, C, 8), torch.bfloat16, torch.device("cpu"))


@pytest.mark.parametrize("is_tiled", [False, True])
def test_a_text_as_the_mixer_in_torchs_operations_has_it(is_tiled: bool) -> None:
    spec = replace(SPEC, num_key_heads=2, num_heads=4, is_tiled=is_tiled)
    layer = Layer(spec, (2, C, 8), torch.float32, torch.device("cpu"))
    text = layer.text(40, 3)
    expected = layer.expected(text)
    assert (layer.whole(text) - expected).norm() < 1e-5 * expected.norm()


def test_a_text_in_pieces_has_the_bits_of_the_whole() -> None:
    """Beside another that is cut elsewhere, and after drafts that were wrong."""
    ends, sizes = {0: 50, 1: 20}, (1, 3, 5, 17, 18)
    texts = {id: SHORT.text(end, id) for id, end in ends.items()}
    cache, draw, done = Cache(SHORT, 2), random.Random(0), dict.fromkeys(ends, 0)
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
        assert torch.equal(torch.cat(found[id]), SHORT.whole(text))


def test_a_further_state_is_what_another_request_goes_on_from() -> None:
    text = SHORT.text(52, 6)
    cache = Cache(SHORT, 2)
    texts = {0: text, 1: text}
    pages = {16: cache.spare[: cache.num_state], 48: cache.spare[cache.num_state :][: cache.num_state]}
    first, second = (Checkpoint(RequestId(0), 0, each, tuple(map(BlockId, own))) for each, own in pages.items())
    cache.step(texts, {0: (0, 15)})
    cache.step(texts, {0: (15, 46)}, first)  # passes two tiles, so it overwrites where it began
    cache.step(texts, {0: (46, 52)}, second)
    expected = SHORT.whole(text)
    for position, own in pages.items():
        low = position // C % 2 * (cache.num_tile + cache.num_state) + cache.num_tile
        for memory in cache.state:
            memory[cache.tables[1].long()] = torch.nan
            memory[cache.tables[1, low : low + cache.num_state].long()] = memory[own]
        assert torch.equal(cache.step(texts, {1: (position, 52)})[1], expected[position:])
