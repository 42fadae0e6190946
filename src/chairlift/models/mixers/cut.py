"""The part of a mixer that one rank of several holds: whole heads, with what belongs to them.

    attention         heads of queries in groups with their keys and values; more ranks than groups share these
    gated delta net   heads of keys with their heads of values: channels, rates and states of these

Knows nothing of tensors' names. A mixer that is cut has one line in `_CUTTERS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.models.mixers.mixer import MixerSpec

if TYPE_CHECKING:
    from chairlift.models.shards import Rank

Span = tuple[int, int]  # first, and behind the last


class Section(NamedTuple):
    """Rows or columns that belong together, and those of them that the rank has."""

    size: int
    span: Span


@dataclass(frozen=True, slots=True)
class MixerCut:
    own: MixerSpec
    rows: Mapping[str, Sequence[Section]]  # of matrices and further tensors by role, in our order; others: whole
    columns: Sequence[Section]  # of the output's matrix


def cut_mixer(spec: MixerSpec, rank: "Rank") -> MixerCut:
    cut, _ = _CUTTERS[type(spec)]
    return cut(spec, rank)


def why_not_cut(spec: MixerSpec, count: int) -> str:
    """Why so many ranks cannot share it; empty: they can."""
    if type(spec) not in _CUTTERS:
        return f"layers of {spec.name} are not cut into parts"
    _, why_not = _CUTTERS[type(spec)]
    return why_not(spec, count)


def _attention(spec: AttentionSpec, rank: "Rank") -> MixerCut:
    queries, keys = _heads(spec, rank)
    query_rows = _section(spec.num_heads, queries, spec.head_dim)
    key_rows = _section(spec.num_kv_heads, keys, spec.head_dim)
    return MixerCut(
        own=replace(spec, num_heads=queries[1] - queries[0], num_kv_heads=keys[1] - keys[0]),
        rows={
            "qkv": (*[query_rows] * (1 + spec.has_gate), key_rows, key_rows),
            "sinks": (_section(spec.num_heads, queries),),
        },
        columns=(query_rows,),
    )


def _heads(spec: AttentionSpec, rank: "Rank") -> tuple[Span, Span]:
    """The rank's heads of queries, and of keys and values."""
    group = spec.num_heads // spec.num_kv_heads
    if rank.count <= spec.num_kv_heads:
        low, high = rank.span(spec.num_kv_heads)
        return (low * group, high * group), (low, high)
    queries = rank.span(spec.num_heads)
    return queries, (queries[0] // group, queries[0] // group + 1)


def _why_not_attention(spec: AttentionSpec, count: int) -> str:
    heads, groups = spec.num_heads, spec.num_kv_heads
    if spec.has_keys_as_values or not spec.has_own_rows:
        return "layers that share keys and values, or have keys as values, are not cut into parts"
    if spec.has_wide_qk_norm:
        return "norms over all heads take more than a rank has"
    if count > groups and (count % groups or heads // groups % (count // groups)):
        return f"num_attention_heads {heads} and num_key_value_heads {groups} cannot be cut into so many parts"
    return ""


def _delta_net(spec: DeltaNetSpec, rank: "Rank") -> MixerCut:
    shared, all_keys = spec.num_heads // spec.num_key_heads, spec.num_key_heads
    low, high = rank.span(all_keys)
    # Of key heads side by side, or as often as some of them come, one value head of each.
    run, turns = (1, shared) if spec.is_tiled else (shared, 1)
    values, each = (
        [_section(all_keys * run, (low * run, high * run), width)] * turns for width in (spec.value_dim, 1)
    )  # fmt: skip
    keys = [_section(all_keys, (low, high), spec.key_dim)] * 2
    return MixerCut(
        own=replace(spec, num_key_heads=high - low, num_heads=(high - low) * shared),
        rows={
            "inputs": (*keys, *values, *values), "rates": (*each, *each), "taps": (*keys, *values), "decay": each,
            "log_decay": each, "bias": each,
        },
        columns=values,
    )  # fmt: skip


def _why_not_delta_net(spec: DeltaNetSpec, count: int) -> str:
    heads = spec.num_key_heads
    return f"linear_num_key_heads {heads} cannot be cut into so many equal parts" if heads % count else ""


def _section(count: int, heads: Span, width: int = 1) -> Section:
    """Of heads of this width."""
    low, high = heads
    return Section(count * width, (low * width, high * width))


_CUTTERS: dict[type[MixerSpec], tuple[Callable[[Any, "Rank"], MixerCut], Callable[[Any, int], str]]] = {
    AttentionSpec: (_attention, _why_not_attention),
    DeltaNetSpec: (_delta_net, _why_not_delta_net),
}
