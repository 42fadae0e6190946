"""Whether the exact attention kernels agree on this device: tried on random numbers when a runner is made.

They do the same operations in the same order by how they are written. But which numbers meet in one instruction of the
tensor cores is the compiler's choice, made for each kernel by itself, and another compiler or device may choose
otherwise.

Always: the kernels are launched as steps launch them, so what is tried is what serves.
"""

import logging

import torch
from torch import Tensor

from chairlift.core.errors import InvalidConfig
from chairlift.runner.cuda.exact_attend import attend_one_row, attend_prompts, attend_rows
from chairlift.runner.cuda.layout import QUERIES
from chairlift.runner.cuda.ops import CudaBatch
from chairlift.runner.cuda.tiling import tiling
from chairlift.runner.model import Decoder

_NUM_TOKENS = 256  # of a text: a kernel that differs shows it in one of some ten thousand numbers
_MANY = 1 << 20  # rows, so that a program walks all of one's context

_log = logging.getLogger(__name__)


class Trial:
    """A text of random numbers in a cache of its own; every token is a query."""

    def __init__(self, model: Decoder, block_size: int, width: int, device: torch.device) -> None:
        """width: of block tables, which kernels are compiled for."""
        config, dtype = model.config, model.norm.dtype
        self._model = model
        self._count = count = min(_NUM_TOKENS, len(model.rotation), block_size * width)
        source = torch.Generator(device).manual_seed(0)
        lines = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        # Large, so that shares differ much and what is different in a score is seen in them.
        self._qkv = (2 * torch.randn(count, lines, generator=source, device=device)).to(dtype)
        blocks = -(-count // block_size)
        shape = (blocks, config.num_kv_heads, block_size, config.head_dim)
        self._keys, self._values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        self._tables = torch.zeros(1, width, dtype=torch.int32, device=device)
        self._tables[0, :blocks] = torch.arange(blocks, device=device)
        # A token's numbers lie apart, as they begin at multiples of 16 bytes in a step; slots are positions here.
        self._apart = torch.zeros(2, count, 4, dtype=torch.int32, device=device)
        self._apart[0, :, 0] = torch.arange(count, device=device)
        self._positions, self._rows = self._apart[:, :, 0].contiguous()
        self._counters = torch.zeros(config.num_kv_heads, dtype=torch.int32, device=device)
        self._q = self._rotated()

    def _rotated(self) -> Tensor:
        nothing = self._positions[:0]
        batch = CudaBatch(
            tokens=nothing, positions=self._positions, slots=self._positions, starts=nothing, contexts=nothing,
            tables=self._tables, num_decodes=0, max_context=0, logit_rows=nothing, table_rows=self._rows,
            tiling=tiling(1, 1, False, exact=True), tiles=None, short_positions=nothing,
        )  # fmt: skip
        config = self._model.config
        return self._model.ops.rotate_and_store(
            self._qkv, self._model.rotation, self._keys, self._values, batch, config.num_heads, None, None, 0.0
        )

    def by_rows(self, num_rows: int) -> Tensor:
        """Each token by itself, cut as it is among so many."""
        config, out = self._model.config, self._out()
        cut = tiling(num_rows, self._count, config.num_heads != config.num_kv_heads, exact=True)
        attend_rows(
            self._q, self._keys, self._values, self._tables, self._rows, self._positions, cut, self._scale,
            config.sliding_window, out,
        )  # fmt: skip
        return out

    def by_tiles(self) -> Tensor:
        out = self._out()
        tiles = [(low, min(QUERIES, self._count - low), low, 0) for low in range(0, self._count, QUERIES)]
        attend_prompts(
            self._q, self._keys, self._values, self._tables, torch.tensor(tiles, dtype=torch.int32, device=out.device),
            self._scale, self._model.config.sliding_window, out,
        )  # fmt: skip
        return out

    def fused(self, at: int) -> Tensor:
        """One token by the kernel that rotates and stores too."""
        config = self._model.config
        position, row = self._apart[:, at, :1]
        cut = tiling(1, 1 << at.bit_length(), config.num_heads != config.num_kv_heads, exact=True)
        # A copy, so that a kernel which waits lies between two of these, as in steps: they read keys before they wait.
        qkv = self._qkv[at : at + 1].clone()
        return attend_one_row(
            qkv, self._model.rotation, self._keys, self._values, position, position, row,
            self._tables, cut, config.num_heads, self._scale, config.sliding_window, self._counters,
        )  # fmt: skip

    def is_fused_equal(self, wanted: Tensor) -> bool:
        """What is stored counts too."""
        keys, values = self._keys.clone(), self._values.clone()
        self._keys.zero_()
        self._values.zero_()
        found = torch.cat([self.fused(at) for at in range(self._count)])
        return torch.equal(found, wanted) and torch.equal(self._keys, keys) and torch.equal(self._values, values)

    def _out(self) -> Tensor:
        return torch.empty(len(self._q), self._q[0].numel(), dtype=self._q.dtype, device=self._q.device)

    @property
    def _scale(self) -> float:
        return self._model.config.head_dim**-0.5


@torch.inference_mode()
def can_fuse(model: Decoder, block_size: int, width: int, device: torch.device) -> bool:
    """Whether a single token may be answered by one kernel. Where others differ nothing is exact, which is refused."""
    trial = Trial(model, block_size, width, device)
    wanted = trial.by_rows(1)
    for name, found in (("rows", trial.by_rows(_MANY)), ("prompts", trial.by_tiles())):
        if not torch.equal(found, wanted):
            raise InvalidConfig(
                f"exact: as this device computes attention, {name} come out with other bits than single rows; "
                "leave --exact out"
            )
    if model.config.has_qk_norm:  # is summed by a kernel of its own
        return False
    is_equal = trial.is_fused_equal(wanted)
    if not is_equal:
        _log.warning("exact: one kernel for a single token has other bits here, so several are used, which is slower")
    return is_equal
