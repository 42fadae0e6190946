"""Whether the exact attention kernels agree on this device: tried on random numbers when a runner is made.

They do the same operations in the same order by how they are written. But which numbers meet in one instruction of the
tensor cores is the compiler's choice, made for each kernel by itself, and another compiler or device may choose
otherwise.

Always: the kernels are launched as steps launch them, so what is tried is what serves.
"""

import logging
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.cuda.attention.tiling import Tiling, choose_tiling
from chairlift.runner.cuda.exact.attention import attend_one_row, attend_prompts, attend_rows
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.ops import Attention, Batch

_NUM_TOKENS = 256  # of a text: a kernel that differs shows it in one of some ten thousand numbers
_MANY = 1 << 20  # rows, so that a program walks all of one's context

_log = logging.getLogger(__name__)


class RotateAndStore(Protocol):
    def rotate_and_store(
        self, qkv: Tensor, attention: Attention, keys: Tensor, values: Tensor, batch: Batch
    ) -> Tensor: ...


class Trial:
    """A text of random numbers in a cache of its own; every token is a query."""

    def __init__(
        self, ops: RotateAndStore, attention: Attention, dtype: torch.dtype, block_size: int, width: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        """width: of block tables, which kernels are compiled for."""
        spec = attention.spec
        # Norms of heads are taken by the same kernel in any step.
        self._attention = attention = replace(
            attention, spec=replace(spec, has_qk_norm=False), q_norm=None, k_norm=None
        )
        self._spec = attention.spec
        self._count = count = min(_NUM_TOKENS, len(attention.rotation), block_size * width)
        source = torch.Generator(device).manual_seed(0)
        lines = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
        # Large, so that shares differ much and what is different in a score is seen in them.
        self._qkv = (2 * torch.randn(count, lines, generator=source, device=device)).to(dtype)
        blocks = -(-count // block_size)
        shape = (blocks, spec.num_kv_heads, block_size, spec.head_dim)
        self._keys, self._values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        self._tables = torch.zeros(1, width, dtype=torch.int32, device=device)
        self._tables[0, :blocks] = torch.arange(blocks, device=device)
        # A token's numbers lie apart, as they begin at multiples of 16 bytes in a step; slots are positions here.
        self._apart = torch.zeros(2, count, 4, dtype=torch.int32, device=device)
        self._apart[0, :, 0] = torch.arange(count, device=device)
        self._positions, self._rows = self._apart[:, :, 0].contiguous()
        self._counters = torch.zeros(spec.num_kv_heads, dtype=torch.int32, device=device)
        batch = self._batch(self._positions, self._rows, choose_tiling(1, 1, False, exact=True))
        self._q = ops.rotate_and_store(self._qkv, attention, self._keys, self._values, batch)

    def _batch(self, positions: Tensor, rows: Tensor, tiling: Tiling) -> CudaBatch:
        nothing = positions[:0]
        return CudaBatch(
            tokens=nothing, positions=positions, slots=positions, starts=nothing, contexts=nothing,
            tables=self._tables, num_decodes=0, max_context=0, logit_rows=nothing, table_rows=rows,
            tiling=tiling, tiles=None, short_positions=nothing,
        )  # fmt: skip

    def by_rows(self, num_rows: int) -> Tensor:
        """Each token by itself, cut as it is among so many."""
        out, tiling = self._out(), choose_tiling(num_rows, self._count, self._spec.has_groups, exact=True)
        attend_rows(
            self._q, self._keys, self._values, self._tables, self._rows, self._positions, tiling, self._spec, out
        )
        return out

    def by_tiles(self) -> Tensor:
        out = self._out()
        places = [(low, min(QUERIES, self._count - low), low, 0) for low in range(0, self._count, QUERIES)]
        tiles = torch.tensor(places, dtype=torch.int32, device=out.device)
        attend_prompts(self._q, self._keys, self._values, self._tables, tiles, self._spec, out)
        return out

    def fused(self, at: int) -> Tensor:
        """One token by the kernel that rotates and stores too."""
        position, row = self._apart[:, at, :1]
        tiling = choose_tiling(1, 1 << at.bit_length(), self._spec.has_groups, exact=True)
        # A copy, so that a kernel which waits lies between two of these, as in steps: they read keys before they wait.
        qkv = self._qkv[at : at + 1].clone()
        batch = self._batch(position, row, tiling)
        return attend_one_row(qkv, self._attention, self._keys, self._values, batch, self._counters)

    def is_fused_equal(self, wanted: Tensor) -> bool:
        """What is stored counts too."""
        keys, values = self._keys.clone(), self._values.clone()
        self._keys.zero_()
        self._values.zero_()
        found = torch.cat([self.fused(at) for at in range(self._count)])
        return torch.equal(found, wanted) and torch.equal(self._keys, keys) and torch.equal(self._values, values)

    def _out(self) -> Tensor:
        return torch.empty(len(self._q), self._q[0].numel(), dtype=self._q.dtype, device=self._q.device)


@torch.inference_mode()
def can_fuse(
    ops: RotateAndStore, attention: Attention, dtype: torch.dtype, block_size: int, width: int, device: torch.device
) -> bool:
    """Whether a single token may be answered by one kernel. Where others differ nothing is exact, which is refused."""
    trial = Trial(ops, attention, dtype, block_size, width, device)
    wanted = trial.by_rows(1)
    for name, found in (("rows", trial.by_rows(_MANY)), ("prompts", trial.by_tiles())):
        if not torch.equal(found, wanted):
            raise InvalidConfig(
                f"exact: as this device computes attention, {name} come out with other bits than single rows; "
                "leave --exact out"
            )
    if attention.spec.has_qk_norm:  # is summed by a kernel of its own
        return False
    is_equal = trial.is_fused_equal(wanted)
    if not is_equal:
        _log.warning("exact: one kernel for a single token has other bits here, so several are used, which is slower")
    return is_equal
