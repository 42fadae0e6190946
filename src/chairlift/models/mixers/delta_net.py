"""Gated delta net: a matrix for each head, of keys and values, that each token changes a little.

    state S [keys, values]; of each token: decay e^g, strength beta, query q, key k, value v
    S = e^g S;  u = beta (v - k S);  S += k^T u;  output q S, normalised and gated

Queries, keys and values have passed a convolution over the last `num_taps` tokens, a channel at a time. Several value
heads share a query and a key.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chairlift.models.mixers.mixer import Fixed, MixerSpec
from chairlift.models.parts import Matrix, MixerTensors, Part, SectionOrder, stacked

if TYPE_CHECKING:
    from chairlift.models.spec import Names

_OWN = "linear_attn."  # before its tensors' names


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNetSpec(MixerSpec):
    num_key_heads: int
    num_heads: int  # of values
    key_dim: int
    value_dim: int
    num_taps: int
    is_by_key_head: bool = False  # how files order the rows of its inputs

    @property
    def name(self) -> str:
        return "gated delta net"

    @property
    def num_channels(self) -> int:
        """Of the convolution."""
        return 2 * self.num_key_heads * self.key_dim + self.num_outputs

    @property
    def num_inputs(self) -> int:
        return self.num_channels + self.num_outputs + 2 * self.num_heads

    @property
    def num_outputs(self) -> int:
        return self.num_heads * self.value_dim

    @property
    def fixed(self) -> Fixed:
        return Fixed(
            wide=self.num_heads * self.key_dim * self.value_dim,
            narrow=(self.num_taps - 1) * self.num_channels,
            row=self.num_channels + 2 * self.num_heads,
        )

    def tensors(self, prefix: str, names: "Names", hidden: int) -> MixerTensors:
        own = prefix + _OWN
        if self.is_by_key_head:
            inputs, rates = self._by_key_head(own, hidden)
        else:
            rows = (self.num_channels, self.num_outputs)
            inputs = stacked(own, ("in_proj_qkv", "in_proj_z"), rows, hidden)
            rates = stacked(own, ("in_proj_b", "in_proj_a"), (self.num_heads,) * 2, hidden)
        return MixerTensors(
            matrices={"inputs": inputs, "rates": rates._replace(is_exact=True)},
            output=stacked(own, ("out_proj",), (hidden,), self.num_outputs),
            norms={"norm": Part(f"{own}norm.weight", (self.value_dim,))},
            further={
                "taps": Part(f"{own}conv1d.weight", (self.num_channels, 1, self.num_taps)),
                "decay": Part(f"{own}A_log", (self.num_heads,)),
                "bias": Part(f"{own}dt_bias", (self.num_heads,)),
            },
        )

    def _by_key_head(self, own: str, hidden: int) -> tuple[Matrix, Matrix]:
        """Each key head has its query, its key, then values and gates of its value heads."""
        shared = self.num_heads // self.num_key_heads
        values = shared * self.value_dim
        inputs = SectionOrder(self.num_key_heads, (self.key_dim, self.key_dim, values, values))
        rates = SectionOrder(self.num_key_heads, (shared, shared))
        num_rows = self.num_channels + self.num_outputs
        return (
            Matrix((Part(f"{own}in_proj_qkvz.weight", (num_rows, hidden), inputs),)),
            Matrix((Part(f"{own}in_proj_ba.weight", (2 * self.num_heads, hidden), rates),)),
        )
