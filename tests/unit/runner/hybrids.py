"""Steps of tiny hybrids: caches with the states of their requests."""

from collections.abc import Callable
from typing import Any

import torch

from chairlift.core.ids import BlockId
from chairlift.core.plan import AdapterSlot, Checkpoint, Chunk
from chairlift.models.kv_groups import KvGroups, kv_groups
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache, sizes_of
from chairlift.runner.model import Decoder
from chairlift.runner.ops import Batch
from chairlift.runner.torch.batching import batch_of
from fakes.rank_threads import ThreadedModel
from unit.runner.twins import CPU, step


def groups_of(config: ModelConfig, block_size: int, dtype: torch.dtype) -> KvGroups:
    return kv_groups(config, sizes=sizes_of(block_size, dtype, dtype))


class States:
    """A cache, and pages of it for the states of requests by id."""

    def __init__(
        self, decoder: Decoder | ThreadedModel, block_size: int, num_blocks: int = 40, max_requests: int = 4,
        device: torch.device = CPU,
    ) -> None:  # fmt: skip
        def cache(num_blocks: int) -> Any:
            if isinstance(decoder, ThreadedModel):
                return decoder.caches(num_blocks, block_size, can_group=True)
            groups = groups_of(decoder.config, block_size, decoder.dtype)
            return KvCache(decoder.config, num_blocks, block_size, decoder.dtype, device, groups=groups)

        (kind,) = cache(1).kinds
        self.kind: Any = kind
        self.num_own = kind.num_decoding(1)
        self.first = num_blocks
        self.kv = cache(num_blocks + (max_requests + 1) * self.num_own)
        for state in self.kv.state:
            for memory in state:
                memory.fill_(torch.nan)
        self.decoder: Any = decoder

    def pages(self, index: int) -> list[BlockId]:
        first = self.first + index * self.num_own
        return [BlockId(page) for page in range(first, first + self.num_own)]

    def run(
        self, chunks: list[Chunk], checkpoints: tuple[Checkpoint, ...] = (),
        before: Callable[[Batch], None] = lambda batch: None, adapters: tuple[AdapterSlot, ...] = (),
    ) -> torch.Tensor:  # fmt: skip
        """The logits of each sampled chunk's last token, in the order of `chunks`; of a chunk with drafts, all its."""
        own = [chunk._replace(tables=(*chunk.tables, self.pages(chunk.request.id))) for chunk in chunks]
        plan = step(own)._replace(checkpoints=checkpoints, adapters=adapters)
        with torch.inference_mode():
            batch = batch_of(plan, self.kv.block_size, {}, self.kv.tokens.device, self.kv.kinds, self.kv.num_groups)
            before(batch)
            logits = self.decoder.logits(self.decoder.hidden(batch, self.kv))
        found, first = {}, 0
        for chunk in plan.chunks:
            count = (1 + len(chunk.drafts)) * bool(chunk.samples)
            found[chunk.request.id] = logits[first : first + count]
            first += count
        return torch.cat([found[chunk.request.id] for chunk in chunks])
