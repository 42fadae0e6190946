"""Latent attention: keys and values of all heads are made of one short row of each token, which alone is kept.

row     latent, normed | key, rotated, of all heads alike      [rank + turned]
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chairlift.models.mixers.attention import Rotation
from chairlift.models.mixers.mixer import MixerSpec, Rows
from chairlift.models.parts import MixerTensors, Part, stacked

if TYPE_CHECKING:
    from chairlift.models.spec import Names

# Of a layer, beside the output's: queries, or their latent, its norm and what makes queries of it; a token's row, the
# norm of its latent and what makes keys and values of that.
_QUERY, _QUERY_DOWN = "self_attn.q_proj", "self_attn.q_a_proj"
_QUERY_NORM, _QUERY_UP = "self_attn.q_a_layernorm", "self_attn.q_b_proj"
_ROW, _ROW_NORM, _ROW_UP = "self_attn.kv_a_proj_with_mqa", "self_attn.kv_a_layernorm", "self_attn.kv_b_proj"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSpec(MixerSpec):
    num_heads: int
    query_rank: int  # of the queries' own latent; 0: they have none
    rank: int  # of the latent of keys and values
    still_dim: int  # values of a head's query and key that do not turn, its first
    turned_dim: int  # and those that do, in pairs of neighbours
    value_dim: int
    scale: float  # of the product of a query and a key
    rotation: Rotation
    eps: float = 1e-6  # of the latents' norms, whatever other norms have

    @property
    def name(self) -> str:
        return "latent attention"

    @property
    def head_dim(self) -> int:
        """Of queries and keys."""
        return self.still_dim + self.turned_dim

    @property
    def row_dim(self) -> int:
        return self.rank + self.turned_dim

    @property
    def num_inputs(self) -> int:
        return (self.query_rank or self.num_heads * self.head_dim) + self.row_dim

    @property
    def num_outputs(self) -> int:
        return self.num_heads * self.value_dim

    @property
    def rows(self) -> tuple[Rows, ...]:
        return (Rows(1, self.row_dim),)

    @property
    def rotations(self) -> tuple[tuple[Rotation | None, int], ...]:
        return ((self.rotation, self.turned_dim),)

    @property
    def expands_from(self) -> float:
        """Tokens of a chunk from which it takes fewer multiplications to make the keys and values of every head."""
        saved = self.row_dim + self.rank - self.head_dim - self.value_dim  # of a pair and head
        can_pad = self.value_dim <= self.head_dim
        return self.rank * (self.still_dim + self.value_dim) / saved if saved > 0 and can_pad else math.inf

    def tensors(self, prefix: str, names: "Names", hidden: int) -> MixerTensors:
        query_rows, up_rows = self.num_heads * self.head_dim, self.num_heads * (self.still_dim + self.value_dim)
        first = _QUERY_DOWN if self.query_rank else _QUERY
        inputs = stacked(prefix, (first, _ROW), (self.query_rank or query_rows, self.row_dim), hidden)
        matrices, norms = {"inputs": inputs}, {"row_norm": _norm(prefix + _ROW_NORM, self.rank, names)}
        if self.query_rank:
            matrices["queries"] = stacked(prefix, (_QUERY_UP,), (query_rows,), self.query_rank)
            norms["query_norm"] = _norm(prefix + _QUERY_NORM, self.query_rank, names)
        (up,) = stacked(prefix, (_ROW_UP,), (up_rows,), self.rank).parts
        output = stacked(prefix, (names.output,), (hidden,), self.num_outputs)
        return MixerTensors(matrices=matrices, output=output, norms=norms, further={"row_up": up})


def _norm(name: str, width: int, names: "Names") -> Part:
    return Part(f"{name}.weight", (width,), offset=names.norm_offset)
