"""A token's attention has the same bits by itself, in a chunk cut anywhere, and among others.

In Triton's interpreter; on a GPU see tests/gpu/test_exact.py.
"""

import os

import pytest
import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.cuda.attention.tiling import EXACT_SPLIT, EXACT_TILE, choose_tiling
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.layout import QUERIES

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("ordered_dots"),
]

DIM, SIZE = 16, 8
LENGTHS = (2 * EXACT_SPLIT + 3, 40, 5)  # of the texts
Chunk = tuple[int, int, int]  # text, first position, tokens


class Texts:
    """Keys, values and queries of a few texts over shuffled blocks; what no text holds is not a number."""

    def __init__(self, heads: int, kv_heads: int, dtype: torch.dtype) -> None:
        numbers = torch.Generator().manual_seed(5)
        lengths = [-(-length // SIZE) for length in LENGTHS]
        blocks = torch.randperm(sum(lengths) + 2, generator=numbers).int()
        self.tables = torch.zeros(len(LENGTHS), max(lengths) + 1, dtype=torch.int32)
        self.keys, self.values = (torch.full((len(blocks), kv_heads, SIZE, DIM), torch.nan) for _ in range(2))
        self.queries = [torch.randn(length, heads, DIM, generator=numbers).to(dtype) for length in LENGTHS]
        low = 0
        for text, count in enumerate(lengths):
            self.tables[text, :count] = blocks[low : low + count]
            low += count
            for position in range(LENGTHS[text]):
                block = int(self.tables[text, position // SIZE])
                for memory in (self.keys, self.values):
                    memory[block, :, position % SIZE] = torch.randn(kv_heads, DIM, generator=numbers)
        self.keys, self.values = self.keys.to(dtype), self.values.to(dtype)

    def attend(
        self, chunks: list[Chunk], tiled: bool, window: int = 0, cap: float = 0.0, is_whole: bool = False
    ) -> Tensor:
        """tiled: by tiles of queries; else every row by itself. is_whole: one program walks all of a row."""
        owners = torch.cat([torch.full((count,), text) for text, _, count in chunks])
        positions = torch.cat([torch.arange(first, first + count) for _, first, count in chunks]).int()
        tiles, low = [], 0
        for text, first, count in chunks:
            tiles += [(low + i, min(QUERIES, count - i), first + i, text) for i in range(0, count, QUERIES)]
            low += count
        nothing = positions[:0]
        tiling = choose_tiling(1, int(positions.max()) + 1, False, exact=True)
        batch = CudaBatch(
            tokens=nothing, positions=positions, slots=nothing, starts=nothing, contexts=nothing, tables=self.tables,
            num_decodes=0, max_context=0, logit_rows=None, table_rows=owners.int(),
            tiling=tiling._replace(num_splits=1) if is_whole else tiling,
            tiles=torch.tensor(tiles, dtype=torch.int32) if tiled else None,
            short_positions=nothing if tiled else positions,
        )  # fmt: skip
        q = torch.cat([self.queries[text][first : first + count] for text, first, count in chunks])
        spec = AttentionSpec(
            num_heads=q.shape[1], num_kv_heads=self.keys.shape[1], head_dim=DIM, scale=DIM**-0.5, rotation=None,
            window=window, cap=cap,
        )  # fmt: skip
        return CudaOps(exact=True).attention(q, spec, self.keys, self.values, batch)


def bits(x: Tensor) -> Tensor:
    assert x.isfinite().all()
    return x.view(torch.int16 if x.element_size() == 2 else torch.int32)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dtype", "window", "cap"),
    [
        (1, 1, torch.bfloat16, 0, 0.0),
        (4, 2, torch.float32, EXACT_TILE + 5, 0.0),
        (1, 1, torch.bfloat16, EXACT_SPLIT + 9, 0.7),
        pytest.param(4, 2, torch.float32, 0, 0.7, marks=pytest.mark.nightly),
        pytest.param(1, 1, torch.bfloat16, EXACT_SPLIT + 9, 0.0, marks=pytest.mark.nightly),
        pytest.param(1, 1, torch.bfloat16, EXACT_TILE + 5, 0.0, marks=pytest.mark.nightly),
        pytest.param(4, 2, torch.float32, EXACT_SPLIT + 9, 0.0, marks=pytest.mark.nightly),
    ],
)
def test_a_token_has_the_same_bits_by_itself_and_in_any_chunk(
    heads: int, kv_heads: int, dtype: torch.dtype, window: int, cap: float
) -> None:
    texts = Texts(heads, kv_heads, dtype)
    length = LENGTHS[0]
    first = 2 * EXACT_SPLIT - 2
    alone = torch.cat([texts.attend([(0, at, 1)], False, window, cap) for at in range(first, length)])
    for cut in (first + 1, 2 * EXACT_SPLIT):
        chunks = [(0, first, cut - first), (0, cut, length - cut)]
        assert torch.equal(bits(texts.attend(chunks, True, window, cap)), bits(alone))
    for is_whole in (False, True):
        among = texts.attend([(2, 4, 1), (0, first, length - first), (1, 37, 3)], False, window, cap, is_whole)
        assert torch.equal(bits(among[1:-3]), bits(alone))
