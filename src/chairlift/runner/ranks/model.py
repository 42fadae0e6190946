"""The model and the cache of several ranks as the first rank's runner sees them: it tells the others what it does.

Only the first rank knows requests and chooses tokens.
"""

from torch import Tensor

from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache, Moves
from chairlift.runner.model import Decoder, OnLayer, nothing
from chairlift.runner.ops import Batch, Ops
from chairlift.runner.ranks.group import Group
from chairlift.runner.ranks.orders import Head, Move, Orders, compute, lost_on_error


class RankedCache:
    def __init__(self, part: KvCache, orders: Orders) -> None:
        """part: of this rank."""
        self.part = part
        self.block_size = part.block_size
        self.kinds, self.num_groups, self.fit = part.kinds, part.num_groups, part.fit
        self._orders = orders

    def move_blocks(self, swap_outs: Moves = (), swap_ins: Moves = (), copies: Moves = ()) -> None:
        moves = (swap_outs, swap_ins, copies)
        if not any(map(len, moves)):
            return
        self._orders.send(Move(*([(int(a), int(b)) for a, b in each] for each in moves)))
        with lost_on_error():
            self.part.move_blocks(*moves)


class RankedModel:
    def __init__(self, decoder: Decoder, group: Group, orders: Orders) -> None:
        """decoder: of this rank, spread over the group."""
        self.config: ModelConfig = decoder.config
        self.ops: Ops = decoder.ops
        self._decoder = decoder
        self._group = group
        self._orders = orders

    def hidden(self, batch: Batch, kv: RankedCache, on_layer: OnLayer = nothing) -> Tensor:
        self._orders.send(compute(batch))
        with lost_on_error():
            return self._decoder.hidden(batch, kv.part, on_layer)

    def logits(self, hidden: Tensor) -> Tensor:
        self._orders.send(Head(len(hidden)))
        with lost_on_error():
            return self._decoder.logits(self._group.from_first(hidden))
