"""Gated delta net: a matrix for each head, of keys and values, that each token changes a little.

    state S [keys, values]; of each token: decay e^g, strength beta, query q, key k, value v
    S = e^g S;  u = beta (v - k S);  S += k^T u;  output q S, normalised and gated

Queries, keys and values have passed a convolution over the last `num_taps` tokens, a channel at a time. Several value
heads share a query and a key: neighbours, or, tiled, every `num_key_heads`-th:

    key heads 0 1, value heads        0 1 2 3
    key head of each                  0 0 1 1        tiled  0 1 0 1
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chairlift.models.mixers.mixer import Fixed, MixerSpec
from chairlift.models.parts import Matrix, MixerTensors, Part, SectionOrder, stacked

if TYPE_CHECKING:
    from chairlift.models.spec import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNetSpec(MixerSpec):
    num_key_heads: int
    num_heads: int  # of values
    key_dim: int
    value_dim: int
    num_taps: int
    is_tiled: bool = False

    @property
    def name(self) -> str:
        return "gated delta net"

    @property
    def num_neighbours(self) -> int:
        """Value heads beside each other that share a key head: head h has key head h // this % num_key_heads."""
        return 1 if self.is_tiled else self.num_heads // self.num_key_heads

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
        before = self.num_channels - self.num_outputs
        channels, gates, heads = (
            self._tiling(names, *each) for each in ((self.value_dim, before), (self.value_dim, 0), (1, 0))
        )
        rows, own = (self.num_channels, self.num_outputs), self._num_sharing * self.value_dim
        by_key_head, shared = (self.key_dim, self.key_dim, own, own), (self._num_sharing,) * 2
        rates = self._stacked(prefix, names.delta_rates, (self.num_heads,) * 2, (heads, heads), shared, hidden)
        (output,) = stacked(prefix, (names.delta_output,), (hidden,), self.num_outputs).parts
        return MixerTensors(
            matrices={
                "inputs": self._stacked(prefix, names.delta_inputs, rows, (channels, gates), by_key_head, hidden),
                "rates": rates._replace(is_exact=True),
            },
            output=Matrix((output._replace(columns=gates),)),
            norms={"norm": Part(f"{prefix}{names.delta_norm}.weight", (self.value_dim,))},
            further={
                "taps": Part(f"{prefix}{names.delta_taps}", (self.num_channels, 1, self.num_taps), channels),
                "log_decay" if names.has_log_decay else "decay": Part(
                    f"{prefix}{names.delta_decay}", (self.num_heads,), heads
                ),
                "bias": Part(f"{prefix}{names.delta_bias}", (self.num_heads,), heads),
            },
        )

    @property
    def _num_sharing(self) -> int:
        """Value heads of a key head."""
        return self.num_heads // self.num_key_heads

    def _tiling(self, names: "Names", size: int, before: int) -> SectionOrder | None:
        """Of rows by value head, `size` each, behind others: of a file whose heads are not tiled, where ours are."""
        assert self.is_tiled or not names.has_tiled_heads
        if not self.is_tiled or names.has_tiled_heads:
            return None
        return SectionOrder(self.num_key_heads, (size,) * self._num_sharing, before=before)

    def _stacked(
        self, prefix: str, names: tuple[str, ...], rows: tuple[int, ...], orders: tuple[SectionOrder | None, ...],
        by_key_head: tuple[int, ...], hidden: int,
    ) -> Matrix:  # fmt: skip
        """One name: its rows are stored key head after key head, each with so many of every kind."""
        if len(names) < len(rows):
            names, rows, orders = names[:1], (sum(rows),), (SectionOrder(self.num_key_heads, by_key_head),)
        each = zip(names, rows, orders, strict=True)
        return Matrix(tuple(Part(f"{prefix}{name}.weight", (count, hidden), order) for name, count, order in each))
