"""Models that turn inputs into rows of numbers: an encoder, or a decoder without a KV cache.

A decoder attends through the same operations as when it makes text. They want keys and values in blocks: those of the
step's inputs are written to a scratch that the layers use in turn, and mean nothing after the step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from chairlift.models.embedding.declared import EmbeddingConfig
from chairlift.runner.embedding.encoder import Encoder, ScoreHead, normalized, pool
from chairlift.runner.embedding.inputs import BLOCK, Input, Rows, rows_of
from chairlift.runner.mixers.mixer import State
from chairlift.runner.model import Decoder, OnLayer, nothing
from chairlift.runner.ops import Batch


class Embedder(Protocol):
    def vectors(self, inputs: Sequence[Input], on_layer: OnLayer = nothing) -> Tensor:
        """[R, dimensions], or scores [R, 1], in float32 at least."""


@dataclass(frozen=True, slots=True)
class EncoderBody:
    config: EmbeddingConfig
    encoder: Encoder
    head: ScoreHead | None
    device: torch.device

    def vectors(self, inputs: Sequence[Input], on_layer: OnLayer = nothing) -> Tensor:
        rows = rows_of(inputs, self.device)
        pooled = pool(self.encoder.hidden(rows, on_layer), rows, self.config.pooling)
        if self.head is not None:
            return _scores(self.head(pooled.to(self.encoder.embedding.dtype)), self.config)
        return normalized(pooled) if self.config.is_normalized else _wide(pooled)


@dataclass(frozen=True, slots=True)
class DecoderBody:
    config: EmbeddingConfig
    decoder: Decoder
    device: torch.device
    answer: tuple[int, int] | None = None  # tokens whose logits are the score: of "yes" and of "no"

    def vectors(self, inputs: Sequence[Input], on_layer: OnLayer = nothing) -> Tensor:
        rows = rows_of(inputs, self.device)
        batch = _batch(rows, is_last=self.config.pooling == "last")
        hidden = self.decoder.hidden(batch, self._scratch(rows.blocks.count), on_layer)  # type: ignore[arg-type]
        if self.answer is not None:
            true, false = self.decoder.logits(hidden)[:, list(self.answer)].unbind(1)
            return _scores((true - false)[:, None], self.config)
        pooled = hidden if batch.logit_rows is not None else pool(hidden, rows, self.config.pooling)
        return normalized(pooled) if self.config.is_normalized else _wide(pooled)

    def _scratch(self, num_blocks: int) -> "Scratch":
        kinds = [(layer.spec.mixer.rows, layer.spec.mixer.reach) for layer in self.decoder.layers]
        made = {
            kind: tuple(
                torch.zeros(num_blocks, row.num_heads, BLOCK, row.width, dtype=self.decoder.dtype, device=self.device)
                for row in kind[0]
            )
            for kind in dict.fromkeys(kinds)
        }
        return Scratch([made[kind] for kind in kinds], (0,) * len(kinds))


@dataclass(frozen=True, slots=True)
class Scratch:
    """In the place of a KV cache: layers of one shape share their memory."""

    state: list[State]
    groups: tuple[int, ...]  # of each layer: all see the same blocks


def _batch(rows: Rows, is_last: bool) -> Batch:
    """is_last: only the last row of each input is wanted."""
    _, slots, tables, lengths = rows.blocks
    return Batch(
        tokens=rows.tokens,
        positions=rows.positions,
        slots=slots,
        starts=rows.starts,
        contexts=lengths,
        tables=tables,
        num_decodes=0,
        max_context=max(rows.lengths),
        logit_rows=rows.starts[1:].long() - 1 if is_last else None,
    )


def _scores(logits: Tensor, config: EmbeddingConfig) -> Tensor:
    return torch.sigmoid(_wide(logits)) if config.activation == "sigmoid" else _wide(logits)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
