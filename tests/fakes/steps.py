"""Steps with their inputs, for operations one by one."""

import random

import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec, Rotation
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.ops import Attention, Batch
from chairlift.runner.torch.ops import TorchOps

Span = tuple[int, int]  # (tokens in the cache before, tokens of the chunk)


class Case:
    """A step of chunks over shuffled blocks, laid out for both kinds of operations; decodes first."""

    def __init__(self, spans: list[Span], heads: int, kv_heads: int, dim: int, size: int, tiled: bool = False) -> None:
        rng, torch_rng = random.Random(1), torch.Generator().manual_seed(1)
        self.heads, self.kv_heads, self.dim = heads, kv_heads, dim
        lengths = [-(-(start + count) // size) for start, count in spans]
        num_blocks = sum(lengths) + 3
        free = rng.sample(range(num_blocks), num_blocks)
        tables = torch.zeros(len(spans), max(lengths), dtype=torch.int32)
        for r, length in enumerate(lengths):
            tables[r, :length] = torch.tensor([free.pop() for _ in range(length)])
        owners = torch.cat([torch.full((count,), r) for r, (_, count) in enumerate(spans)])
        positions = torch.cat([torch.arange(start, start + count) for start, count in spans])
        starts = torch.tensor([0, *(count for _, count in spans)]).cumsum(0)
        contexts = torch.tensor([start + count for start, count in spans])
        longest = int(contexts.max())
        parts: dict[str, Tensor | int] = {
            "tokens": owners,
            "positions": positions,
            "slots": tables[owners, positions // size].long() * size + positions % size,
            "starts": starts.int(),
            "contexts": contexts.int(),
            "tables": tables,
            "num_decodes": sum(count == 1 for _, count in spans),
            "max_context": longest,
            "logit_rows": None,
        }
        tiles, short = [], positions.clone()
        for r, (start, count) in enumerate(spans if tiled else []):
            if count > 1:
                low = int(starts[r])
                short[low : low + count] = -1
                tiles += [(low + i, min(QUERIES, count - i), start + i, r) for i in range(0, count, QUERIES)]
        self.plain = Batch(**parts)  # type: ignore[arg-type]
        # As a runner lays steps out; kernels on a GPU are compiled for these numbers.
        narrow = {name: part.int() for name, part in parts.items() if name in ("positions", "slots")}  # type: ignore[union-attr]
        self.cuda = CudaBatch(
            **parts | narrow,  # type: ignore[arg-type]
            table_rows=owners.int(),
            tiling=choose_tiling(len(owners), longest, heads != kv_heads),
            tiles=torch.tensor(tiles, dtype=torch.int32) if tiles else None,
            short_positions=short.int(),
        )
        self.keys, self.values = (torch.randn(num_blocks, kv_heads, size, dim, generator=torch_rng) for _ in range(2))
        self.qkv = torch.randn(len(owners), (heads + 2 * kv_heads) * dim, generator=torch_rng)
        self.rotation = torch.randn(longest, dim, generator=torch_rng)
        self.gain = torch.rand(dim, generator=torch_rng) + 0.5

    def attention(
        self, window: int = 0, has_norm: bool = False, cap: float = 0.0, has_sinks: bool = False
    ) -> Attention:
        spec = AttentionSpec(
            num_heads=self.heads, num_kv_heads=self.kv_heads, head_dim=self.dim, scale=self.dim**-0.5,
            rotation=Rotation(theta=10000.0), window=window, cap=cap, has_qk_norm=has_norm, has_sinks=has_sinks,
        )  # fmt: skip
        gain = self.gain if has_norm else None
        sinks = torch.linspace(-1.0, 4.0, self.heads) if has_sinks else None
        return Attention(spec, self.rotation, gain, gain, 1e-5, sinks=sinks)

    def run(self, ops: CudaOps | TorchOps, attention: Attention | None = None) -> tuple[Tensor, ...]:
        batch = self.cuda if isinstance(ops, CudaOps) else self.plain
        keys, values, attention = self.keys.clone(), self.values.clone(), attention or self.attention()
        q = ops.rotate_and_store(self.qkv.clone(), attention, keys, values, batch)
        return q, keys, values, ops.attention(q, attention.spec, keys, values, batch, attention.sinks)
