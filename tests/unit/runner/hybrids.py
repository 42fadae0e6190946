"""Tiny random hybrids, and caches with the states of their requests."""

from pathlib import Path
from typing import Any

import torch

from chairlift.core.ids import BlockId
from chairlift.core.plan import Checkpoint, Chunk
from chairlift.models.kv_groups import KvGroups, kv_groups
from chairlift.models.spec import ModelConfig
from chairlift.runner.kv_cache import KvCache, sizes_of
from chairlift.runner.model import Decoder
from chairlift.runner.torch.batching import batch_of
from unit.runner import twins
from unit.runner.twins import CPU, Twin, step

LINEAR: dict[str, Any] = {
    "head_dim": 16, "num_hidden_layers": 5, "max_position_embeddings": 256, "pad_token_id": 0,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20,
}  # fmt: skip
HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3.5": ("Qwen3_5Text", LINEAR),
    "qwen3.5-moe": ("Qwen3_5MoeText", LINEAR | EXPERTS),
    "qwen3-next": ("Qwen3Next", LINEAR | EXPERTS),
}


def make_hybrid(folder: Path, name: str, **changes: Any) -> Twin:
    """With decays from a token to hundreds, and strengths of all kinds."""
    return twins.make_twin(folder, name, HYBRIDS, _with_decays, **changes)


def _with_decays(name: str, parameter: torch.Tensor) -> torch.Tensor | None:
    if name.endswith("A_log"):
        return torch.empty_like(parameter).uniform_(0.05, 8.0).log()
    return torch.randn_like(parameter) * 0.5 - 2.0 if name.endswith("dt_bias") else None


def groups_of(config: ModelConfig, block_size: int, dtype: torch.dtype) -> KvGroups:
    return kv_groups(config, sizes=sizes_of(block_size, dtype, dtype))


class States:
    """A cache, and pages of it for the states of requests by id."""

    def __init__(self, decoder: Decoder, block_size: int, num_blocks: int = 40, max_requests: int = 4) -> None:
        groups = groups_of(decoder.config, block_size, decoder.dtype)
        (kind,) = KvCache(decoder.config, 1, block_size, decoder.dtype, CPU, groups=groups).kinds
        self.kind: Any = kind
        self.num_own = kind.num_decoding(1)
        self.first = num_blocks
        self.kv = KvCache(
            decoder.config, num_blocks + (max_requests + 1) * self.num_own, block_size, decoder.dtype, CPU,
            groups=groups,
        )  # fmt: skip
        for state in self.kv.state:
            for memory in state:
                memory.fill_(torch.nan)
        self.decoder = decoder

    def pages(self, index: int) -> list[BlockId]:
        first = self.first + index * self.num_own
        return [BlockId(page) for page in range(first, first + self.num_own)]

    def run(self, chunks: list[Chunk], checkpoints: tuple[Checkpoint, ...] = ()) -> torch.Tensor:
        """The logits of each sampled chunk's last token, in the order of `chunks`; of a chunk with drafts, all its."""
        own = [chunk._replace(tables=(*chunk.tables, self.pages(chunk.request.id))) for chunk in chunks]
        plan = step(own)._replace(checkpoints=checkpoints)
        with torch.inference_mode():
            batch = batch_of(plan, self.kv.block_size, {}, CPU, self.kv.kinds, self.kv.num_groups)
            logits = self.decoder.logits(self.decoder.hidden(batch, self.kv))
        found, first = {}, 0
        for chunk in plan.chunks:
            count = (1 + len(chunk.drafts)) * bool(chunk.samples)
            found[chunk.request.id] = logits[first : first + count]
            first += count
        return torch.cat([found[chunk.request.id] for chunk in chunks])
