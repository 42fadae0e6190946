"""The part of a model that one rank of several holds: its declaration, and where its tensors lie in the files.

    mixer, gate_up   rows:     the rank's heads, its part of the inner width
    output, down     columns:  the same; the ranks' products add up
    head             rows:     the rank's part of the vocabulary; the ranks' logits stand side by side
    all else         whole

`mixers/cut.py` says which heads. Where ranks do not divide a number, the first ranks take more; beside states, whose
pages are alike in all ranks, heads have to divide. Knows nothing of files or numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.cut import Section, Span, cut_mixer, why_not_cut
from chairlift.models.parts import Order, Part, SectionOrder
from chairlift.models.spec import BlockWeights, LayerSpec, ModelConfig
from chairlift.models.tensors import end_tensors, layer_tensors, num_parameters

# Widths are cut at a multiple of one of these, the first that fits: blocks of quantised weights stay whole.
_UNITS = (32, 16, 8, 4, 2, 1)
_BLOCK_UNITS = (256, *_UNITS)


@dataclass(frozen=True, slots=True)
class Rank:
    index: int = 0
    count: int = 1

    def span(self, total: int) -> Span:
        """Its part of so many; the first ranks take one more where they do not divide."""
        each, more = divmod(total, self.count)
        low = self.index * each + min(self.index, more)
        return low, low + each + (self.index < more)


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
    low, high = rank.span(config.vocab_size)
    own = replace(config, layers=tuple(layers[spec] for spec in config.layers), is_tied=False, num_head_rows=high - low)
    return replace(own, blocks=_part(config.blocks, config, own), packed=_part(config.packed, config, own))


def largest_shard(config: ModelConfig, count: int) -> ModelConfig:
    """Of so many ranks, the one that holds most: the first."""
    return shard(config, Rank(0, count))


def check_cuts(config: ModelConfig, count: int) -> None:
    """Refuses a number of ranks that the model cannot be cut for."""
    if why_not := _why_not(config, count):
        fewer = next(each for each in range(count - 1, 0, -1) if not _why_not(config, each))
        beside = " and, for several GPUs, --replicas" if fewer == 1 else ""
        raise InvalidConfig(f"tensor_parallel {count}: {why_not}; use --tensor-parallel {fewer}{beside}")


def _why_not(config: ModelConfig, count: int) -> str:
    """Empty: it can be cut."""
    if count == 1:
        return ""
    if config.token_width:
        return f"layers of {config.architecture} take inputs of their own from tokens, and are not cut into parts"
    for spec in config.kinds_of_layers:
        if spec.feed_forward.experts is not None:
            return "experts are not cut into parts"
        if why_not := why_not_cut(spec.mixer, count):
            return why_not
        if count > spec.feed_forward.width:
            return f"intermediate_size {spec.feed_forward.width} cannot be cut into so many parts"
    groups = {attention.num_kv_heads for attention in config.attentions}
    if any(mixer.fixed for mixer in config.mixers) and any(each % count for each in groups if each > count):
        # A state has as many pages in every rank, whose size is that of keys and values.
        return (
            f"num_key_value_heads {max(groups)} cannot be cut into so many equal parts, as beside states they have to"
        )
    return ""


def is_even(config: ModelConfig, count: int) -> bool:
    """Whether all ranks have as much to compute."""
    first, last = shard(config, Rank(0, count)), shard(config, Rank(count - 1, count))
    return first.layers == last.layers


def cuts(config: ModelConfig, rank: Rank) -> dict[tuple[str, tuple[int, ...]], Cut]:
    """Of each tensor that the rank has only a part of, by the name and shape that its own declaration lists."""
    own = shard(config, rank)
    found = dict(_end_cuts(config, own, rank))
    for index, spec in enumerate(config.layers):
        found |= _layer_cuts(config, own, index, spec, rank)
    return found


def added_once(config: ModelConfig) -> Iterator[str]:
    """Biases of matrices that are cut by columns: of all ranks the first alone adds them to the sum."""
    for index in range(config.num_layers):
        layer = layer_tensors(config, index)
        yield from (part.name for part in (*layer.mixer.output.bias, *(layer.down.bias if layer.down else ())))


def _layer(spec: LayerSpec, rank: Rank, has_blocks: bool) -> LayerSpec:
    low, high = _inner(spec.feed_forward.width, rank, has_blocks)
    return replace(
        spec, mixer=cut_mixer(spec.mixer, rank).own, feed_forward=replace(spec.feed_forward, width=high - low)
    )


def _inner(width: int, rank: Rank, has_blocks: bool) -> Span:
    unit = next(unit for unit in (_BLOCK_UNITS if has_blocks else _UNITS) if _fits(width, unit, rank.count, has_blocks))
    low, high = rank.span(width // unit)
    return low * unit, high * unit


def _fits(width: int, unit: int, count: int, has_blocks: bool) -> bool:
    """Blocks stay whole if that makes parts uneven; else parts are even if they can be."""
    if width % unit or width // unit < count:
        return False
    return has_blocks or not width // unit % count or width % count != 0


def _end_cuts(config: ModelConfig, own: ModelConfig, rank: Rank) -> Iterator[tuple[tuple[str, tuple[int, ...]], Cut]]:
    whole, head = end_tensors(config), end_tensors(own).head
    assert head is not None
    stored = (whole.head or whole.embedding).parts[0]
    yield _key(head.parts[0]), Cut(stored.name, stored.shape, 0, (rank.span(config.vocab_size),))


def _layer_cuts(
    config: ModelConfig, own: ModelConfig, index: int, spec: LayerSpec, rank: Rank
) -> dict[tuple[str, tuple[int, ...]], Cut]:
    whole, ours = layer_tensors(config, index), layer_tensors(own, index)
    assert whole.gate_up and whole.down and ours.gate_up and ours.down, "check_cuts refuses experts"
    width, mixer = spec.feed_forward.width, cut_mixer(spec.mixer, rank)
    inner = _inner(width, rank, config.blocks is not None)
    halves = [Section(width, inner)] * (2 if spec.feed_forward.has_gate else 1)
    rows: list[tuple[Sequence[Part], Sequence[Part], Sequence[Section]]] = [
        (whole.gate_up.parts, ours.gate_up.parts, halves),
        (whole.gate_up.bias, ours.gate_up.bias, halves),
    ]
    for role, sections in mixer.rows.items():
        if role in whole.mixer.matrices:
            stored, mine = whole.mixer.matrices[role], ours.mixer.matrices[role]
            rows += [(stored.parts, mine.parts, sections), (stored.bias, mine.bias, sections)]
        elif role in whole.mixer.further:
            rows.append(((whole.mixer.further[role],), (ours.mixer.further[role],), sections))
    found: dict[tuple[str, tuple[int, ...]], Cut] = {}
    for each in rows:
        found |= _row_cuts(*each)
    for stored_part, own_part, sections in (
        (whole.mixer.output.parts[0], ours.mixer.output.parts[0], mixer.columns),
        (whole.down.parts[0], ours.down.parts[0], halves[:1]),
    ):
        spans = _spans(iter(sections), stored_part.shape[1])
        found[_key(own_part)] = Cut(stored_part.name, stored_part.shape, 1, spans)
    return found


def _row_cuts(
    stored: Sequence[Part], mine: Sequence[Part], sections: Sequence[Section]
) -> dict[tuple[str, tuple[int, ...]], Cut]:
    """sections: of all parts, one after the other."""
    found, coming = {}, iter(sections)
    for part, own in zip(stored, mine, strict=True):
        spans = _stored_spans(part.order, _spans(coming, part.shape[0]))
        found[_key(own)] = Cut(part.name, part.shape, 0, spans)
    return found


def _spans(coming: Iterator[Section], count: int) -> tuple[Span, ...]:
    """The rank's among so many rows or columns, of as many sections as they have."""
    spans, first = [], 0
    while first < count:
        size, (low, high) = next(coming)
        spans.append((first + low, first + high))
        first += size
    return tuple(spans)


def _stored_spans(order: Order | None, spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Where a file has these rows: heads stay whole, and so do groups, which it has one after the other."""
    if not isinstance(order, SectionOrder):
        return spans
    low, high = (row // order.sizes[0] * sum(order.sizes) for row in spans[0])
    return ((low, high),)


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
