"""Paged attention against a plain softmax over each query's own context."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.native import library
from chairlift.runner.native.ops import NativeOps, available
from chairlift.runner.ops import Batch

pytestmark = pytest.mark.skipif(not available(), reason="the kernels are not built or not for this processor")

TOLERANCE = {torch.bfloat16: 2e-2, torch.float32: 1e-5}


@pytest.fixture(params=[-1, library.HAS_AVX2], ids=["best", "avx2"], scope="module", autouse=True)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[None]:
    kernels = library.load()
    assert kernels is not None
    kernels.chairlift_features(request.param)
    yield
    kernels.chairlift_features(-1)


@dataclass
class World:
    """Chunks of (context, tokens); every slot that belongs to none of them holds NaN."""

    chunks: list[tuple[int, int]]
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(0)
        widths = [-(-context // self.block_size) for context, _ in self.chunks]
        blocks = torch.randperm(sum(widths), generator=self.random).int()
        self.tables = torch.zeros(len(widths), max(widths), dtype=torch.int32)
        shape = (sum(widths), self.kv_heads, self.block_size, self.head_dim)
        self.keys, self.values = (torch.full(shape, torch.nan).to(self.dtype) for _ in range(2))
        self.own: list[tuple[Tensor, Tensor]] = []
        for r, (context, _) in enumerate(self.chunks):
            first = sum(widths[:r])
            self.tables[r, : widths[r]] = blocks[first : first + widths[r]]
            at = torch.arange(context)
            block, offset = self.tables[r].long()[at // self.block_size], at % self.block_size
            k, v = (self.normal(context, self.kv_heads, self.head_dim) for _ in range(2))
            self.keys[block, :, offset], self.values[block, :, offset] = k, v
            self.own.append((k.float(), v.float()))
        self.q = self.normal(sum(n for _, n in self.chunks), self.heads, self.head_dim)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random).to(self.dtype)

    def batch(self, chosen: list[int], counts: list[int], contexts: list[int]) -> Batch:
        starts = torch.tensor([0, *counts]).cumsum(0).int()
        none = torch.empty(0)
        tables = self.tables[chosen]
        return Batch(none, none, none, starts, torch.tensor(contexts).int(), tables, 0, max(contexts), none)

    def spec(self, window: int, cap: float) -> AttentionSpec:
        return AttentionSpec(
            num_heads=self.heads, num_kv_heads=self.kv_heads, head_dim=self.head_dim, scale=self.head_dim**-0.5,
            rotation=None, window=window, cap=cap,
        )  # fmt: skip

    def attend(self, ops: NativeOps, window: int, cap: float = 0.0) -> Tensor:
        contexts, counts = zip(*self.chunks, strict=True)
        batch = self.batch(list(range(len(self.chunks))), list(counts), list(contexts))
        return ops.attention(self.q, self.spec(window, cap), self.keys, self.values, batch)

    def expected(self, window: int, cap: float = 0.0) -> Tensor:
        group, row, out = self.heads // self.kv_heads, 0, []
        for (context, count), (k, v) in zip(self.chunks, self.own, strict=True):
            for position in range(context - count, context):
                seen = slice(max(0, position - window + 1) if window else 0, position + 1)
                keys, values = (x[seen].repeat_interleave(group, 1) for x in (k, v))
                scores = torch.einsum("hd,khd->hk", self.q[row].float(), keys) * self.head_dim**-0.5
                scores = cap * torch.tanh(scores / cap) if cap else scores
                out.append(torch.einsum("hk,khd->hd", scores.softmax(-1), values).flatten())
                row += 1
        return torch.stack(out)


MIXED = [(1, 1), (17, 1), (200, 1), (33, 1), (40, 40), (70, 21), (5, 3)]


SHAPES = [
    (9, 3, 64, 16), (8, 1, 64, 16), (4, 4, 16, 2), (6, 3, 80, 1), (16, 2, 128, 32), (5, 1, 128, 16), (20, 1, 32, 16),
    (4, 2, 24, 16), (2, 1, 256, 4),
]  # fmt: skip


def check(world: World, window: int, cap: float) -> None:
    actual, expected = world.attend(NativeOps(2), window, cap), world.expected(window, cap)
    tolerance = TOLERANCE[world.dtype]
    torch.testing.assert_close(actual.float(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "block_size"), SHAPES)
def test_each_query_sees_its_own_context(
    dtype: torch.dtype, heads: int, kv_heads: int, head_dim: int, block_size: int
) -> None:
    check(World(MIXED, heads, kv_heads, head_dim, block_size, dtype), 0, 0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("window", "cap"), [(1, 0.0), (20, 0.0), (0, 0.7), (20, 0.7)])
def test_windows_and_caps_hold_for_each_query(dtype: torch.dtype, window: int, cap: float) -> None:
    check(World(MIXED, *SHAPES[0], dtype), window, cap)


@given(
    chunks=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=5),
    shape=st.sampled_from(SHAPES),
    window=st.sampled_from([0, 1, 20]),
    cap=st.sampled_from([0.0, 0.7]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
)
@settings(max_examples=40, deadline=None)
def test_chunks_of_any_size_see_their_context(
    chunks: list[tuple[int, int]], shape: tuple[int, int, int, int], window: int, cap: float, dtype: torch.dtype
) -> None:
    check(World([(context, min(count, context)) for context, count in chunks], *shape, dtype), window, cap)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (50, 0.0), (0, 0.7)])
def test_long_contexts_are_attended(dtype: torch.dtype, window: int, cap: float) -> None:
    check(World([(3000, 1), (2111, 7)], 9, 3, 64, 16, dtype), window, cap)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("window", "cap", "heads", "kv_heads"), [(0, 0.0, 9, 3), (20, 0.0, 8, 1), (0, 0.7, 4, 4), (20, 0.7, 9, 3)]
)
def test_a_query_has_the_same_bits_in_a_prompt_in_a_chunk_and_alone(
    dtype: torch.dtype, window: int, cap: float, heads: int, kv_heads: int
) -> None:
    world = World([(90, 90)], heads, kv_heads, 64, 16, dtype)
    spec, whole = world.spec(window, cap), world.attend(NativeOps(2), window, cap)
    for cuts in ([33, 90], [1, 2, 64, 90], list(range(1, 91))):
        for low, high in zip([0, *cuts], cuts, strict=False):
            batch = world.batch([0], [high - low], [high])
            part = NativeOps(1).attention(world.q[low:high], spec, world.keys, world.values, batch)
            assert torch.equal(part, whole[low:high]), (low, high)
