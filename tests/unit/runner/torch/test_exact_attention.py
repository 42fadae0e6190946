"""Attention and activation of `TorchOps(exact=True)`: right, and the same bits however tokens come."""

import pytest
import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import ACTIVATIONS
from chairlift.runner.ops import Adding, Batch, Norm
from chairlift.runner.torch.ops import TorchOps

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 6, 2, 16, 8
LENGTH = 700


def batch_of(chunks: list[tuple[int, int]], tables: Tensor, num_decodes: int) -> Batch:
    """chunks: (start, count)"""
    counts = torch.tensor([count for _, count in chunks])
    contexts = torch.tensor([start + count for start, count in chunks], dtype=torch.int32)
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0))).to(torch.int32)
    nothing = torch.empty(0, dtype=torch.int64)
    return Batch(nothing, nothing, nothing, starts, contexts, tables, num_decodes, int(contexts.max()), nothing)


class World:
    """Three requests whose blocks are mixed, and a query for each of their tokens."""

    def __init__(self, dtype: torch.dtype) -> None:
        source = torch.Generator().manual_seed(3)
        num_blocks = -(-LENGTH // BLOCK)
        cache = (3 * num_blocks + 1, KV_HEADS, BLOCK, HEAD_DIM)
        self.keys, self.values = (torch.randn(cache, generator=source).to(dtype) for _ in range(2))
        self.keys[-1] = self.values[-1] = torch.nan  # a block of no request
        self.tables = torch.randperm(3 * num_blocks, generator=source).view(3, num_blocks).to(torch.int32)
        self.q = torch.randn((3, LENGTH, HEADS, HEAD_DIM), generator=source).to(dtype)

    def attend(
        self, ops: TorchOps, chunks: list[tuple[int, int, int]], num_decodes: int, window: int, cap: float = 0.0
    ) -> list[Tensor]:
        """chunks: (request, start, count); the answers of each."""
        owners = [owner for owner, _, _ in chunks]
        batch = batch_of([chunk[1:] for chunk in chunks], self.tables[owners], num_decodes)
        q = torch.cat([self.q[owner, start : start + count] for owner, start, count in chunks])
        spec = AttentionSpec(
            num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, scale=0.25, rotation=None, window=window, cap=cap
        )
        out = ops.attention(q, spec, self.keys, self.values, batch)
        return list(out.split([count for _, _, count in chunks]))


@pytest.mark.parametrize(
    ("dtype", "window", "cap"),
    [
        *((torch.float32, window, 0.0) for window in (0, 9, 200)),
        (torch.bfloat16, 0, 0.0),
        (torch.float16, 9, 0.0),
        (torch.float64, 200, 0.0),
        (torch.float32, 0, 0.7),
        (torch.bfloat16, 200, 0.7),
        *(pytest.param(torch.bfloat16, window, 0.0, marks=pytest.mark.nightly) for window in (9, 200)),
        *(pytest.param(torch.float16, window, 0.0, marks=pytest.mark.nightly) for window in (0, 200)),
        *(pytest.param(torch.float64, window, 0.0, marks=pytest.mark.nightly) for window in (0, 9)),
        *(pytest.param(torch.float64, window, 0.7, marks=pytest.mark.nightly) for window in (0, 9)),
    ],
    ids=str,
)
def test_a_token_has_the_same_bits_however_it_comes(dtype: torch.dtype, window: int, cap: float) -> None:
    world, ops = World(dtype), TorchOps(exact=True)
    whole = [world.attend(ops, [(owner, 0, LENGTH)], 0, window, cap)[0] for owner in range(3)]
    for chunks, num_decodes in (
        ([(0, 0, 1), (1, 127, 1), (2, 128, 1)], 3),
        ([(1, 699, 1), (0, 500, 1), (2, 511, 1)], 3),
        ([(0, 300, 1), (1, 650, 1), (2, 100, 300)], 2),
        ([(2, 0, 129), (0, 1, 1), (1, 250, 17)], 0),
        ([(1, 512, 188), (2, 3, 60), (0, 127, 2)], 0),
    ):
        parts = world.attend(ops, chunks, num_decodes, window, cap)
        for (owner, start, count), part in zip(chunks, parts, strict=True):
            assert torch.equal(part, whole[owner][start : start + count]), (owner, start, count)


@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (9, 0.0), (200, 0.0), (0, 0.7), (200, 0.7)])
def test_the_answers_are_those_of_the_plain_operations_to_rounding(window: int, cap: float) -> None:
    world, chunks = World(torch.float64), [(0, 400, 1), (1, 40, 1), (2, 100, 590)]
    exact, plain = (world.attend(TorchOps(exact), chunks, 2, window, cap) for exact in (True, False))
    for own, other in zip(exact, plain, strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_has_the_same_bits_beside_any_number_of_rows(dtype: torch.dtype, activation: str) -> None:
    x = torch.randn(300, 2 * 1001, generator=torch.Generator().manual_seed(1)).mul(4).to(dtype)
    ops = TorchOps(exact=True)
    whole = ops.activate(x, activation)
    for rows in (1, 2, 16, 17, 33, 66, 131):
        assert torch.equal(torch.cat([ops.activate(part, activation) for part in x.split(rows)]), whole), rows


@pytest.mark.parametrize("width", [301, 1001, 50_001])
def test_capped_logits_have_the_same_bits_beside_any_number_of_rows(width: int) -> None:
    logits = torch.randn(130, width, generator=torch.Generator().manual_seed(1)).mul(40)
    ops = TorchOps(exact=True)
    whole = ops.cap(logits.clone(), 30.0)
    for rows in (1, 2, 17, 66):
        assert torch.equal(torch.cat([ops.cap(part.clone(), 30.0) for part in logits.split(rows)]), whole), rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("has_gain", [False, True])
def test_norms_have_the_same_bits_beside_any_number_of_rows(dtype: torch.dtype, has_gain: bool) -> None:
    source = torch.Generator().manual_seed(1)
    x, residual = (torch.randn(300, 1001, generator=source).to(dtype) for _ in range(2))
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    norm = Norm(torch.rand(1001, generator=source).to(wide), 1e-5) if has_gain else None
    ops = TorchOps(exact=True)
    normed, summed = ops.add_norm(x.clone(), residual.clone(), norm, Adding(0.22))
    for rows in (1, 2, 17, 131):
        parts = [
            ops.add_norm(a.clone(), b.clone(), norm, Adding(0.22))
            for a, b in zip(x.split(rows), residual.split(rows), strict=True)
        ]
        assert torch.equal(torch.cat([part for part, _ in parts]), normed), rows
        assert torch.equal(torch.cat([total for _, total in parts]), summed), rows
