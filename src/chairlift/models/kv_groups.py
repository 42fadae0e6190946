"""Which layers share pages of the cache, so that each kind of them keeps and releases its own.

Layers that see all tokens are the first group; those with a window form groups of as many, and so do those that keep a
state in place of tokens. The i-th layers of all groups share their tensors, and each group has tables of its own: so
all pages are alike, and one pool has them.

    Gemma 3, 12 layers:  w w w w w F w w w w w F      F: sees all tokens
    group                1 1 2 2 3 0 3 4 4 5 5 0
    place                0 1 0 1 0 0 1 0 1 0 1 1      two tensors of keys, two of values

Where what a layer with a window keeps of a token is narrower or wider, pages still have as many bytes (`Fit`).

    twice as wide:    a block takes two pages of each group, of half its tokens each
    half as wide:     groups have twice as many layers, and two of a group are at one place

A state takes several pages at its layer's place, those of all layers of a group the same ones. Layers without rows of
their own have the group and the place of those whose rows they read.
"""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from chairlift.core.errors import InvalidConfig
from chairlift.core.memory.pages import CHECKPOINT_TOKENS, Group
from chairlift.models.mixers.mixer import Fixed, MixerSpec
from chairlift.models.spec import ModelConfig


class Sizes(NamedTuple):
    """Bytes."""

    block_size: int = 16  # tokens
    kept: int = 2  # of a number of keys and values
    beside: int = 0  # of each head of a token, beside these
    narrow: int = 2  # of a number of the model
    wide: int = 4  # of one that is float32 at least

    def page(self, mixer: MixerSpec) -> int:
        """Of a page at the place of such a layer."""
        return self.block_size * sum(rows.num_heads * (rows.width * self.kept + self.beside) for rows in mixer.rows)

    def state(self, fixed: Fixed) -> int:
        return fixed.wide * self.wide + fixed.narrow * self.narrow

    def tile(self, fixed: Fixed) -> int:
        return self.block_size * fixed.row * self.narrow


DEFAULT_SIZES = Sizes()


class Fit(NamedTuple):
    """How layers with a window use pages that are made for others; one of the two is 1."""

    pages_a_block: int = 1
    layers_a_place: int = 1


WHOLE = Fit()


@dataclass(frozen=True, slots=True)
class KvGroups:
    groups: tuple[int, ...]  # of each layer; 0: sees all tokens, or there is one group alone
    places: tuple[int, ...]  # of each layer within its group
    declared: tuple[Group, ...] = ()  # what layers keep beside blocks of all tokens
    counts: tuple[int, ...] = ()  # groups of each of these
    parts: tuple[int, ...] = ()  # of each layer within its place; none: 0
    fit: Fit = WHOLE

    def beside(self, max_model_len: int) -> tuple[Group, ...]:
        """The same as declared, where requests have so many tokens."""
        is_needed = any(group.kind != "window" or group.reach < max_model_len for group in self.declared)
        return self.declared if is_needed else ()  # else nothing is ever behind a window

    @property
    def num_places(self) -> int:
        """Layers of a page."""
        return max(self.places, default=-1) + 1


def kv_groups(config: ModelConfig, can_group: bool = True, sizes: Sizes = DEFAULT_SIZES) -> KvGroups:
    """One group, in which every layer keeps all tokens, unless some layers have a window or a state and others have
    none, all with the same window and rows that fit; and where transformers runs the model."""
    mixers = [layer.mixer for layer in config.layers]
    own = [mixer for mixer in mixers if mixer.has_own_rows]
    full = [mixer for mixer in own if not mixer.fixed and not mixer.reach]
    fixed = [mixer.fixed for mixer in own if mixer.fixed]
    if fixed and not full:
        raise InvalidConfig(f"{config.architecture}: no layer keeps all tokens, which is not supported")
    local = [mixer for mixer in own if mixer.reach]
    can_group = can_group and config.fallback is None and bool(full) and len({mixer.reach for mixer in local}) == 1
    fit = _fit(full, local) if can_group else None
    kinds = [2 if mixer.fixed else int(mixer.reach > 0 and fit is not None) for mixer in own]
    num_full, each = kinds.count(0), (fit or WHOLE).layers_a_place
    per_place = (1, each, 1)
    sizes_of_groups = [num_full * count for count in per_place]
    counts = [0, *(-(-kinds.count(kind) // sizes_of_groups[kind]) for kind in (1, 2))]  # groups beside the first
    firsts, seen = (0, 1, 1 + counts[1]), [0, 0, 0]
    found: list[tuple[int, int, int]] = []  # group, place and part of each layer
    last: dict[int, tuple[int, int, int]] = {}  # of the last layer with rows of its own, by reach
    coming = iter(kinds)
    for mixer in mixers:
        if mixer.has_own_rows:
            kind = next(coming)
            group, index = divmod(seen[kind], sizes_of_groups[kind])
            found.append((firsts[kind] + group, *divmod(index, per_place[kind])))
            seen[kind] += 1
            if not mixer.fixed:
                last[mixer.reach] = found[-1]
        else:
            found.append(last[mixer.reach])
    groups, places, parts = (tuple(each[i] for each in found) for i in range(3))
    declared = [Group("window", counts[1] * fit.pages_a_block, local[0].reach)] if fit else []
    if fixed:
        page = min(sizes.page(mixer) for mixer in own if not mixer.fixed and (fit is None or not mixer.reach))
        declared.append(_fixed_group(fixed, counts[2], page, sizes))
    return KvGroups(groups, places, tuple(declared), tuple(filter(None, counts)), parts, fit or WHOLE)


def _fit(full: list[MixerSpec], local: list[MixerSpec]) -> Fit | None:
    """None: what layers with a window keep does not fit pages of the others."""
    kept, narrow_kept = {mixer.rows for mixer in full}, {mixer.rows for mixer in local}
    if len(kept) != 1 or len(narrow_kept) != 1:
        return None
    (rows,), (own,) = kept, narrow_kept
    pairs = {(prod(one), prod(other)) for one, other in zip(rows, own, strict=False)}
    if len(rows) != len(own) or len(pairs) != 1:
        return None
    ((wide, narrow),) = pairs
    if wide % narrow == 0:
        return Fit(layers_a_place=wide // narrow)
    return Fit(pages_a_block=narrow // wide) if narrow % wide == 0 else None


def _fixed_group(fixed: list[Fixed], count: int, page: int, sizes: Sizes) -> Group:
    """page: bytes of the smallest."""
    num_state, num_tile = (max(-(-size(each) // page) for each in fixed) for size in (sizes.state, sizes.tile))
    reach = max(1, CHECKPOINT_TOKENS // sizes.block_size) * sizes.block_size
    return Group("fixed", count * num_state, reach, count * num_tile)
