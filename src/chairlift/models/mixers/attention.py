"""Attention: a token's queries over the keys and values of those before it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chairlift.models.mixers.mixer import MixerSpec, Rows
from chairlift.models.parts import HeadOrder, Matrix, MixerTensors, Part, SectionOrder, stacked

if TYPE_CHECKING:
    from chairlift.models.spec import Names


_ROWS = ("queries", "keys", "values")  # of the first matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Rotary frequencies other than the plain ones."""

    kind: str  # "llama3", "linear", "yarn" or "longrope"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192
    # yarn: pairs with more turns in the original length stay, those with fewer are stretched.
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    is_truncated: bool = True  # yarn: blending begins and ends at whole pairs
    # longrope: what the angles of each pair are divided by, unless and if more than the original length is served
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    attention_factor: float = 1.0  # of the pairs themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """By which angles the pairs of a head turn with its position."""

    theta: float
    scaling: RopeScaling | None = None
    num_turned: int = 0  # values of a head that turn, its first, as if there were no others; 0: all
    num_pairs: int = 0  # pairs of values half of them apart that turn, the first, by angles as if all did; 0: all


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryGrowth:
    """A query at position p is multiplied by 1 + beta * log(1 + p // length)."""

    beta: float
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec(MixerSpec):
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float  # of the product of a query and a key
    rotation: Rotation | None  # None: heads are not rotated
    window: int = 0  # positions that each one sees, its own included; 0: all before it
    cap: float = 0.0  # a score s becomes cap * tanh(s / cap); 0: it stays
    has_bias: bool = False  # of queries, keys and values
    has_output_bias: bool = False
    has_qk_norm: bool = False  # of each head of queries and keys
    has_sinks: bool = False  # each head has a score more, which takes its share and has no value
    has_wide_qk_norm: bool = False  # of all heads of queries at once, and of all heads of keys
    has_value_norm: bool = False  # of each head of values, without weights
    has_keys_as_values: bool = False  # as they are before their norm and rotation; their matrix is there once
    has_own_rows: bool = True  # False: only queries are its own
    has_gate: bool = False  # what each head gives is multiplied by the sigmoid of as many numbers more
    growth: QueryGrowth | None = None

    @property
    def has_groups(self) -> bool:
        """Several query heads share keys and values."""
        return self.num_heads != self.num_kv_heads

    @property
    def name(self) -> str:
        return "attention"

    @property
    def num_inputs(self) -> int:
        return sum(self._heads) * self.head_dim

    @property
    def _heads(self) -> tuple[int, ...]:
        """That its matrix gives: queries, with gates if there are, then keys, then values."""
        counts = (1 + self.has_gate) * self.num_heads, self.num_kv_heads, self.num_kv_heads
        return counts[: 1 if not self.has_own_rows else 2 if self.has_keys_as_values else len(_ROWS)]

    @property
    def num_outputs(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def rows(self) -> tuple[Rows, ...]:
        return (Rows(self.num_kv_heads, self.head_dim),) * 2  # keys and values

    @property
    def reach(self) -> int:
        return self.window

    @property
    def rotations(self) -> tuple[tuple[Rotation | None, int], ...]:
        return ((self.rotation, self.head_dim),)

    def tensors(self, prefix: str, names: "Names", hidden: int) -> MixerTensors:
        order, count = self._order(names), len(self._heads)
        assert order is None or count == len(_ROWS), "the last rows are values, which are stored in order"
        rows = tuple(heads * self.head_dim for heads in self._heads)
        qkv = stacked(prefix, names.qkv[:count], rows, hidden, self.has_bias, order)
        return MixerTensors(
            matrices={"qkv": self._with_gates(qkv, order) if self.has_gate else qkv},
            output=stacked(prefix, (names.output,), (hidden,), self.num_outputs, self.has_output_bias),
            norms=self._qk_norms(names, prefix, order),
            further={"sinks": Part(f"{prefix}{names.sinks}", (self.num_heads,))} if self.has_sinks else {},
            unread=() if self.has_own_rows else tuple(f"{prefix}{name}." for name in (*names.qkv[1:], names.k_norm)),
        )

    def _with_gates(self, qkv: Matrix, order: HeadOrder | None) -> Matrix:
        """Each head's gate is stored behind its queries."""
        first = order and order._replace(num_heads=self.num_heads)
        own = SectionOrder(self.num_heads, (self.head_dim, self.head_dim), first)
        parts, bias = (
            tuple(part._replace(order=own) if index == 0 else part for index, part in enumerate(parts))
            for parts in (qkv.parts, qkv.bias)
        )
        return Matrix(parts, bias)

    def _order(self, names: "Names") -> HeadOrder | None:
        """Of one head of queries or keys."""
        num_turned = self.rotation.num_turned if self.rotation else 0
        if not names.has_paired_rows and not num_turned:
            return None
        return HeadOrder(1, self.head_dim, num_turned or self.head_dim, names.has_paired_rows)

    def _qk_norms(self, names: "Names", prefix: str, order: HeadOrder | None) -> dict[str, Part]:
        """By role, of queries and keys."""
        if not self.has_qk_norm and not self.has_wide_qk_norm:
            return {}
        offset = names.norm_offset if names.qk_norm_offset is None else names.qk_norm_offset
        counts = (self.num_heads, self.num_kv_heads) if self.has_wide_qk_norm else (1, 1)
        stored = ("q_norm", names.q_norm), ("k_norm", names.k_norm)
        return {
            role: Part(
                f"{prefix}{name}.weight", (count * self.head_dim,), order and order._replace(num_heads=count), offset
            )
            for (role, name), count in zip(stored[: None if self.has_own_rows else 1], counts, strict=False)
        }
