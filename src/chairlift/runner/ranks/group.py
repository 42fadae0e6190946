"""The group of ranks that compute one model: sums of their products, and their logits side by side.

Always: over gloo, and with `exact` over NCCL too, a sum is taken in the order of ranks, number by number, so its bits
depend on nothing but its terms; every rank has the same bits. A library's own reduction chooses its order by the size.
Over gloo, which computes on hosts, numbers of a GPU travel through host memory.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chairlift.models.shards import Rank

_PATIENCE = timedelta(minutes=30)  # a step on a busy CPU may take minutes; a rank's death is seen at once


class Group:
    def __init__(self, store: Path, rank: Rank, device: torch.device, over: str, exact: bool) -> None:
        """Waits for all ranks. store: a file that they share; over: gloo or nccl."""
        self.rank = rank
        self._is_hosted = over == "gloo" and device.type != "cpu"
        self._in_order = over == "gloo" or exact
        self._ranks = _join(store, rank, over)
        # NCCL connects when it is first used, which cannot be captured.
        self.sum(torch.zeros(1, 1, device=device))
        self.side_by_side(torch.zeros(1, 1, device=device), [1] * rank.count)

    def sum(self, x: Tensor) -> Tensor:
        """Of all ranks' [T, E]; may overwrite x."""
        if self.rank.count == 1:
            return x
        if not self._in_order:
            self._ranks.allreduce([x]).wait()
            return x
        total, *others = self._all(x)
        for term in others:
            total += term
        return total

    def side_by_side(self, x: Tensor, widths: list[int]) -> Tensor:
        """[T, widths[rank]] of all ranks -> [T, sum of widths]"""
        if self.rank.count == 1:
            return x
        widest = max(widths)
        padded = x if x.shape[1] == widest else torch.nn.functional.pad(x, (0, widest - x.shape[1]))
        return torch.cat([part[:, :width] for part, width in zip(self._all(padded), widths, strict=True)], dim=1)

    def from_first(self, x: Tensor) -> Tensor:
        """What the first rank has, of the same shape and type; may overwrite x."""
        carried = x.cpu() if self._is_hosted else x.contiguous()
        self._ranks.broadcast([carried]).wait()
        return carried.to(x.device)

    def _all(self, x: Tensor) -> tuple[Tensor, ...]:
        """Every rank's [T, E], in their order."""
        carried = x.cpu() if self._is_hosted else x.contiguous()
        gathered = carried.new_empty(self.rank.count * len(x), *x.shape[1:])
        self._ranks._allgather_base(gathered, carried).wait()
        return gathered.to(x.device).chunk(self.rank.count)


def _join(store: Path, rank: Rank, over: str) -> Any:
    """Not torch's default group: a process may load several models. Torch's types do not show all of this."""
    # Not every build of torch has these.
    from torch.distributed import FileStore, ProcessGroupGloo  # type: ignore[attr-defined]

    meeting = FileStore(str(store), rank.count)
    meeting.set_timeout(_PATIENCE)
    if over == "nccl":
        from torch.distributed import ProcessGroupNCCL

        return ProcessGroupNCCL(meeting, rank.index, rank.count, ProcessGroupNCCL.Options())
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = _PATIENCE
    # Ranks are on one machine, and nothing else may reach them.
    options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    return ProcessGroupGloo(meeting, rank.index, rank.count, options)
