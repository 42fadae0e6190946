"""Whether the exact attention kernels agree on this device: tried on random numbers when a runner is made.

They are written as the same operations in the same order. But the compiler chooses for each kernel by itself which
numbers meet in one instruction of the tensor cores, and another compiler or device may choose otherwise.

Always: the kernels are launched as steps launch them.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.cuda.attention.exact import attend_one_row, attend_prompts, attend_rows
from chairlift.runner.cuda.attention.one_row import is_plain
from chairlift.runner.cuda.attention.tiling import Tiling, choose_tiling
from chairlift.runner.cuda.step.batch import CudaBatch
from chairlift.runner.cuda.step.layout import QUERIES
from chairlift.runner.ops import Attention, Batch

_NUM_TOKENS = 256  # of a text: a kernel that differs shows it in one of some ten thousand numbers
_MANY = 1 << 20  # rows, so that a program walks all of one's context

_log = logging.getLogger(__name__)


RotateAndStore = Callable[[Tensor, Attention, Tensor, Tensor, Batch], Tensor]  # as `CudaOps.rotate_and_store`


class Trial:
    """A text of random numbers in a cache of its own; every token is a query."""

    def __init__(
        self, store: RotateAndStore, attention: Attention, dtype: torch.dtype, block_size: int, width: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        """width: of block tables, which kernels are compiled for."""
        spec = attention.spec
        # Norms of heads are taken by the same kernel in any step. What layers read of others is as their own here.
        spec = replace(
            spec, has_qk_norm=False, has_value_norm=False, has_keys_as_values=False, has_own_rows=True
        )  # fmt: skip
        self._attention = attention = replace(attention, spec=spec, q_norm=None, k_norm=None, v_norm=None)
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
        batch = self._batch(choose_tiling(1, 1, False, exact=True))
        self._q = store(self._qkv, attention, self._keys, self._values, batch)

    def _batch(self, tiling: Tiling, tiles: Tensor | None = None) -> CudaBatch:
        positions = self._positions
        short = positions if tiles is None else positions[:0]
        return CudaBatch.of(positions, positions, positions, self._tables, self._rows, tiling, short, tiles)

    def by_rows(self, num_rows: int) -> Tensor:
        """Each token by itself, with the tiling of so many."""
        tiling = choose_tiling(num_rows, self._count, self._spec.has_groups, exact=True)
        return self._attend(attend_rows, self._batch(tiling))

    def by_tiles(self) -> Tensor:
        places = [(low, min(QUERIES, self._count - low), low, 0) for low in range(0, self._count, QUERIES)]
        tiles = torch.tensor(places, dtype=torch.int32, device=self._q.device)
        return self._attend(attend_prompts, self._batch(choose_tiling(1, 1, False, exact=True), tiles))

    def _attend(self, attend: Callable[..., None], batch: CudaBatch) -> Tensor:
        out = torch.empty(len(self._q), self._q[0].numel(), dtype=self._q.dtype, device=self._q.device)
        attend(self._q, self._spec, self._keys, self._values, batch, out)
        return out

    def fused(self, at: int) -> Tensor:
        """One token by the kernel that rotates and stores too."""
        position, row = self._apart[:, at, :1]
        tiling = choose_tiling(1, 1 << at.bit_length(), self._spec.has_groups, exact=True)
        # A copy, so that a kernel which waits lies between two of these, as in steps: they read keys before they wait.
        qkv = self._qkv[at : at + 1].clone()
        batch = CudaBatch.of(position, position, position, self._tables, row, tiling, position)
        return attend_one_row(qkv, self._attention, self._keys, self._values, batch, self._counters)

    def is_fused_equal(self, wanted: Tensor) -> bool:
        """What is stored counts too."""
        keys, values = self._keys.clone(), self._values.clone()
        self._keys.zero_()
        self._values.zero_()
        found = torch.cat([self.fused(at) for at in range(self._count)])
        return torch.equal(found, wanted) and torch.equal(self._keys, keys) and torch.equal(self._values, values)


@torch.inference_mode()
def can_fuse(
    store: RotateAndStore, attention: Attention, dtype: torch.dtype, block_size: int, width: int, device: torch.device
) -> bool:
    """Whether one kernel may compute a single token. Where others differ nothing is exact, which is refused."""
    trial = Trial(store, attention, dtype, block_size, width, device)
    wanted = trial.by_rows(1)
    for name, found in (("rows", trial.by_rows(_MANY)), ("prompts", trial.by_tiles())):
        if not torch.equal(found, wanted):
            raise InvalidConfig(
                f"exact: as this device computes attention, {name} come out with other bits than single rows; "
                "leave --exact out"
            )
    if attention.spec.has_qk_norm or not is_plain(attention):  # norms are summed by a kernel of their own
        return False
    is_equal = trial.is_fused_equal(wanted)
    if not is_equal:
        _log.warning("exact: one kernel for a single token has other bits here, so several are used, which is slower")
    return is_equal
