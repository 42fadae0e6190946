"""The part of a model that one rank of several holds: its declaration, and where its tensors lie in the files.

    qkv, gate_up   rows:     the rank's heads, its part of the inner width
    output, down   columns:  the same; the ranks' products add up
    head           rows:     the rank's part of the vocabulary; the ranks' logits stand side by side
    all else       whole

A rank takes whole groups of query heads with their keys and values. With more ranks than groups the ranks of a group
share its query heads, and each has the group's keys and values. Where ranks do not divide a number, the first ranks
take more. Knows nothing of files or numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.parts import Part
from chairlift.models.spec import BlockWeights, LayerSpec, ModelConfig
from chairlift.models.tensors import end_tensors, layer_tensors, num_parameters

Span = tuple[int, int]  # first, and behind the last
# Widths are cut at a multiple of one of these, the first that fits: blocks of quantised weights stay whole.
_UNITS = (32, 16, 8, 4, 2, 1)
_BLOCK_UNITS = (256, *_UNITS)


@dataclass(frozen=True, slots=True)
class Rank:
    index: int = 0
    count: int = 1


class Cut(NamedTuple):
    """Where a rank's part of a tensor lies in the whole one."""

    name: str  # of the tensor in the files
    shape: tuple[int, ...]  # of the whole one
    dim: int
    spans: tuple[Span, ...]  # along it, one after the other


def shard(config: ModelConfig, rank: Rank) -> ModelConfig:
    """The model of one rank. Its head is a matrix of its own, even where the whole model's is the embedding."""
    if rank.count == 1:
        return config
    layers = {spec: _layer(spec, rank, config.blocks is not None) for spec in config.kinds_of_layers}
    low, high = _span(config.vocab_size, rank)
    own = replace(config, layers=tuple(layers[spec] for spec in config.layers), is_tied=False, num_head_rows=high - low)
    return replace(own, blocks=_part(config.blocks, config, own), packed=_part(config.packed, config, own))


def largest_shard(config: ModelConfig, count: int) -> ModelConfig:
    """Of so many ranks, the one that holds most: the first."""
    return shard(config, Rank(0, count))


def check_cuts(config: ModelConfig, count: int) -> None:
    """Refuses a number of ranks that the model cannot be cut for."""
    for spec in config.kinds_of_layers:
        if count > 1 and spec.feed_forward.experts is not None:
            raise InvalidConfig(
                f"tensor_parallel {count}: experts are not cut into parts; use --tensor-parallel 1 and, for several "
                "GPUs, --replicas"
            )
        if count > 1 and not isinstance(spec.mixer, AttentionSpec):
            raise InvalidConfig(
                f"tensor_parallel {count}: layers of {spec.mixer.name} are not cut into parts; use --tensor-parallel 1 "
                "and, for several GPUs, --replicas"
            )
        if count == 1:
            continue
        heads, groups = spec.attention.num_heads, spec.attention.num_kv_heads
        if config.token_width or spec.attention.has_keys_as_values or not spec.attention.has_own_rows:
            raise InvalidConfig(
                f"tensor_parallel {count}: layers of {config.architecture} that share keys and values, have keys as "
                "values, or take inputs of their own from tokens are not cut into parts; use --tensor-parallel 1 and, "
                "for several GPUs, --replicas"
            )
        if spec.attention.has_wide_qk_norm:
            raise InvalidConfig(
                f"tensor_parallel {count}: {config.architecture} takes norms over all heads, which ranks do not have; "
                "use --tensor-parallel 1"
            )
        if count > groups and (count % groups or heads // groups % (count // groups)):
            raise InvalidConfig(
                f"tensor_parallel {count}: num_attention_heads {heads} and num_key_value_heads {groups} cannot be cut "
                f"into so many parts; use --tensor-parallel {_fewer(heads, groups, count)}"
            )
        if count > spec.feed_forward.width:
            raise InvalidConfig(
                f"tensor_parallel {count}: intermediate_size {spec.feed_forward.width} cannot be cut into so many "
                "parts; use a smaller --tensor-parallel"
            )


def is_even(config: ModelConfig, count: int) -> bool:
    """Whether all ranks have as much to compute."""
    first, last = shard(config, Rank(0, count)), shard(config, Rank(count - 1, count))
    return first.layers == last.layers


def cuts(config: ModelConfig, rank: Rank) -> dict[tuple[str, tuple[int, ...]], Cut]:
    """Of each tensor that the rank has only a part of, by the name and shape that its own declaration lists."""
    own = shard(config, rank)
    found = dict(_end_cuts(config, own, rank))
    for index, (spec, part) in enumerate(zip(config.layers, own.layers, strict=True)):
        found |= _layer_cuts(config, own, index, spec, part, rank)
    return found


def added_once(config: ModelConfig) -> Iterator[str]:
    """Biases of matrices that are cut by columns: of all ranks the first alone adds them to the sum."""
    for index in range(config.num_layers):
        layer = layer_tensors(config, index)
        yield from (part.name for part in (*layer.mixer.output.bias, *(layer.down.bias if layer.down else ())))


def _layer(spec: LayerSpec, rank: Rank, has_blocks: bool) -> LayerSpec:
    queries, keys = _heads(spec.attention, rank)
    low, high = _inner(spec.feed_forward.width, rank, has_blocks)
    attention = replace(spec.attention, num_heads=queries[1] - queries[0], num_kv_heads=keys[1] - keys[0])
    return replace(spec, mixer=attention, feed_forward=replace(spec.feed_forward, width=high - low))


def _heads(spec: AttentionSpec, rank: Rank) -> tuple[Span, Span]:
    """The rank's heads of queries, and of keys and values."""
    group = spec.num_heads // spec.num_kv_heads
    if rank.count <= spec.num_kv_heads:
        low, high = _span(spec.num_kv_heads, rank)
        return (low * group, high * group), (low, high)
    queries = _span(spec.num_heads, rank)
    return queries, (queries[0] // group, queries[0] // group + 1)


def _inner(width: int, rank: Rank, has_blocks: bool) -> Span:
    unit = next(unit for unit in (_BLOCK_UNITS if has_blocks else _UNITS) if _fits(width, unit, rank.count, has_blocks))
    low, high = _span(width // unit, rank)
    return low * unit, high * unit


def _fits(width: int, unit: int, count: int, has_blocks: bool) -> bool:
    """Blocks stay whole if that makes parts uneven; else parts are even if they can be."""
    if width % unit or width // unit < count:
        return False
    return has_blocks or not width // unit % count or width % count != 0


def _span(total: int, rank: Rank) -> Span:
    """The rank's part of so many; the first ranks take one more where they do not divide."""
    each, more = divmod(total, rank.count)
    low = rank.index * each + min(rank.index, more)
    return low, low + each + (rank.index < more)


def _end_cuts(config: ModelConfig, own: ModelConfig, rank: Rank) -> Iterator[tuple[tuple[str, tuple[int, ...]], Cut]]:
    whole, head = end_tensors(config), end_tensors(own).head
    assert head is not None
    stored = (whole.head or whole.embedding).parts[0]
    yield _key(head.parts[0]), Cut(stored.name, stored.shape, 0, (_span(config.vocab_size, rank),))


def _layer_cuts(
    config: ModelConfig, own: ModelConfig, index: int, spec: LayerSpec, part: LayerSpec, rank: Rank
) -> dict[tuple[str, tuple[int, ...]], Cut]:
    whole, ours = layer_tensors(config, index), layer_tensors(own, index)
    assert whole.gate_up and whole.down and ours.gate_up and ours.down, "check_cuts refuses experts"
    dim, heads = spec.attention.head_dim, spec.attention
    (q_low, q_high), (k_low, k_high) = _heads(heads, rank)
    queries, keys = (q_low * dim, q_high * dim), (k_low * dim, k_high * dim)
    inner = _inner(spec.feed_forward.width, rank, config.blocks is not None)
    halves = [(spec.feed_forward.width, inner)] * (2 if spec.feed_forward.has_gate else 1)
    rows = [(heads.num_heads * dim, queries), *[(heads.num_kv_heads * dim, keys)] * 2]
    found: dict[tuple[str, tuple[int, ...]], Cut] = {}
    qkv, own_qkv = whole.mixer.matrices["qkv"], ours.mixer.matrices["qkv"]
    for stored, mine, sections in (
        (qkv.parts, own_qkv.parts, rows),
        (qkv.bias, own_qkv.bias, rows),
        (whole.gate_up.parts, ours.gate_up.parts, halves),
        (whole.gate_up.bias, ours.gate_up.bias, halves),
    ):
        found |= _row_cuts(stored, mine, sections)
    if heads.has_sinks:
        sinks, own_sinks = whole.mixer.further["sinks"], ours.mixer.further["sinks"]
        found[_key(own_sinks)] = Cut(sinks.name, sinks.shape, 0, ((q_low, q_high),))
    for stored, mine, span in (
        (whole.mixer.output.parts, ours.mixer.output.parts, queries),
        (whole.down.parts, ours.down.parts, inner),
    ):
        found[_key(mine[0])] = Cut(stored[0].name, stored[0].shape, 1, (span,))
    return found


def _row_cuts(
    stored: Sequence[Part], mine: Sequence[Part], sections: Sequence[tuple[int, Span]]
) -> dict[tuple[str, tuple[int, ...]], Cut]:
    """sections: rows of each, and the rank's among them. A file may keep them in one tensor, one after the other."""
    if len(stored) == len(sections):
        pairs = zip(stored, mine, sections, strict=True)
        return {_key(own): Cut(part.name, part.shape, 0, (span,)) for part, own, (_, span) in pairs}
    spans, first = [], 0
    for count, (low, high) in sections:
        spans.append((first + low, first + high))
        first += count
    return {_key(own): Cut(part.name, part.shape, 0, tuple(spans)) for part, own in zip(stored, mine, strict=True)}


def _key(part: Part) -> tuple[str, tuple[int, ...]]:
    return part.name, part.shape


def _part(blocks: BlockWeights | None, config: ModelConfig, own: ModelConfig) -> BlockWeights | None:
    """As many of the rank's weights are in blocks as of the whole model's."""
    if blocks is None:
        return None
    part = num_parameters(own) / num_parameters(config)
    return replace(
        blocks, num_bytes=round(blocks.num_bytes * part), num_weights=round(blocks.num_weights * part)
    )  # fmt: skip


def _fewer(heads: int, groups: int, count: int) -> int:
    """The largest smaller number of ranks that fits."""
    fits = (n for n in range(count - 1, 0, -1) if n <= groups or not (n % groups or heads // groups % (n // groups)))
    return next(fits)
