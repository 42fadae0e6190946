"""The adapters of a step for native operations: one kernel call a matrix, whatever adapters its rows have.

    tables    [slots] of each matrix: the record of the adapter there, or 0
    a record  | A | ranks | parts | B of a part | first row | rows | first rank | ranks | ... |   as in adapters.c

Always: the rows' slots and the tables stay where they are, as recorded calls read them there.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, bfloat16

from chairlift.core.plan import AdapterSlot
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import MatrixKey, matrices_by_key
from chairlift.runner.adapters.low_rank import HostAdapter, LowRank
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.native.packed import PackedWeight
from chairlift.runner.native.tape import Calls
from chairlift.runner.ops import Batch, Weight

Record = NDArray[np.int64]


class NativeSlots:
    def __init__(
        self, store: AdapterStore[HostAdapter], num_slots: int, config: ModelConfig, max_rows: int, calls: Calls
    ) -> None:
        """max_rows: of a step."""
        self._store = store
        self._loaded: list[tuple[HostAdapter, Mapping[MatrixKey, Record]] | None] = [None] * num_slots
        self._tables = {key: np.zeros(num_slots, np.int64) for key, _ in matrices_by_key(config)}
        self._table_at = {key: table.ctypes.data for key, table in self._tables.items()}
        self._rows = [np.full(max_rows, -1, np.int32) for _ in range(2)]  # of all, and of those whose logits are wanted
        self._rows_at = [rows.ctypes.data for rows in self._rows]
        self._adapters = calls.adapters

    def load(self, loads: Sequence[AdapterSlot]) -> None:
        for adapter, slot in loads:
            found = self._store.get(adapter)
            records = {key: _record(low_rank) for key, low_rank in found.matrices.items()}
            for key, table in self._tables.items():
                table[slot] = records[key].ctypes.data if key in records else 0
            self._loaded[slot] = found, records

    def begin(self, batch: Batch) -> None:
        assert batch.adapters is not None
        everywhere = batch.adapters.numpy()
        chosen = everywhere if batch.logit_rows is None else everywhere[batch.logit_rows.numpy()]
        for rows, slots in zip(self._rows, (everywhere, chosen), strict=True):
            rows[: len(slots)] = slots

    def add(self, key: MatrixKey, is_chosen: bool, x: Tensor, out: Tensor) -> None:
        """As `HostSlots.add`."""
        x = x.contiguous()
        self._adapters(
            x.data_ptr(), out.data_ptr(), self._rows_at[is_chosen], self._table_at[key], len(x), x.shape[1],
            out.shape[1], len(self._loaded), x.dtype is bfloat16,
        )  # fmt: skip


def _record(low_rank: LowRank) -> Record:
    words: list[int] = [_pointer(low_rank.down), low_rank.parts[-1].ranks.stop, len(low_rank.parts)]
    for rows, ranks, up in low_rank.parts:
        words += _pointer(up), rows.start, rows.stop - rows.start, ranks.start, ranks.stop - ranks.start
    return np.array(words, np.int64)


def _pointer(weight: Weight) -> int:
    assert isinstance(weight, PackedWeight)
    ((_, at, _, _),) = weight.parts
    return at
