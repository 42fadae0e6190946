"""Which layers share pages of the KV cache, so that those with a sliding window can release what lies behind it.

Layers that see all tokens are the first group; those with a window form groups of as many. The i-th layers of all
groups share one tensor, and each group has block tables of its own: so all pages are alike, and one pool has them.

    Gemma 3, 12 layers:  w w w w w F w w w w w F      F: sees all tokens
    group                1 1 2 2 3 0 3 4 4 5 5 0
    place                0 1 0 1 0 0 1 0 1 0 1 1      two tensors of keys, two of values

Where what a layer with a window keeps of a token is narrower or wider, pages still have as many bytes (`Fit`).

    twice as wide:    a block takes two pages of each group, of half its tokens each
    half as wide:     groups have twice as many layers, and two of a group are at one place

Layers without rows of their own have the group and the place of those whose rows they read.
"""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from chairlift.core.memory.pages import Group
from chairlift.models.mixers.mixer import MixerSpec
from chairlift.models.spec import ModelConfig


class Fit(NamedTuple):
    """How layers with a window use pages that are made for others; one of the two is 1."""

    pages_a_block: int = 1
    layers_a_place: int = 1


WHOLE = Fit()


@dataclass(frozen=True, slots=True)
class KvGroups:
    groups: tuple[int, ...]  # of each layer; 0: sees all tokens, or there is one group alone
    places: tuple[int, ...]  # of each layer within its group
    window: int = 0  # of the layers of the other groups
    parts: tuple[int, ...] = ()  # of each layer within its place; none: 0
    fit: Fit = WHOLE

    @property
    def num_others(self) -> int:
        """Groups beside the first."""
        return max(self.groups, default=0)

    @property
    def declared(self) -> tuple[Group, ...]:
        """What layers keep beside blocks of all tokens."""
        num_pages = self.num_others * self.fit.pages_a_block
        return (Group("window", num_pages, self.window),) if num_pages else ()

    def beside(self, max_model_len: int) -> tuple[Group, ...]:
        """The same, where requests have so many tokens."""
        return self.declared if self.window < max_model_len else ()  # else nothing is ever behind a window

    @property
    def num_places(self) -> int:
        """Layers of a page."""
        return max(self.places, default=-1) + 1


def kv_groups(config: ModelConfig, can_group: bool = True) -> KvGroups:
    """One group, in which every layer keeps all tokens, unless some layers have a window and others have none, all
    with the same window and rows that fit; and where transformers runs the model."""
    mixers = [layer.mixer for layer in config.layers]
    own = [mixer for mixer in mixers if mixer.has_own_rows]
    windows, window = {mixer.reach for mixer in own}, max((mixer.reach for mixer in own), default=0)
    fit = _fit(own) if can_group and config.fallback is None and window and windows == {0, window} else None
    num_full = sum(not mixer.reach for mixer in own) if fit else len(own)
    size = num_full * fit.layers_a_place if fit else num_full  # layers of a group with a window
    found: list[tuple[int, int, int]] = []  # group, place and part of each layer
    counts = [0, 0]  # layers with own rows so far, without a window and with; all of them where there is one group
    last: dict[int, tuple[int, int, int]] = {}  # of the last of them, by its reach
    for mixer in mixers:
        if mixer.has_own_rows:
            has_window = fit is not None and mixer.reach > 0
            group, index = divmod(counts[has_window], size if has_window else num_full)
            per_place = fit.layers_a_place if fit is not None and has_window else 1
            last[mixer.reach] = (1 + group) * has_window, index // per_place, index % per_place
            counts[has_window] += 1
        found.append(last[mixer.reach])
    groups, places, parts = (tuple(each[i] for each in found) for i in range(3))
    return KvGroups(groups, places, window, parts, fit) if fit else KvGroups(groups, places)


def _fit(mixers: list[MixerSpec]) -> Fit | None:
    """None: what layers with a window keep does not fit pages of the others."""
    kept = {has_window: {mixer.rows for mixer in mixers if (mixer.reach > 0) == has_window} for has_window in (0, 1)}
    if any(len(rows) > 1 for rows in kept.values()):
        return None
    (full,), (local,) = kept.values()
    pairs = {(prod(one), prod(other)) for one, other in zip(full, local, strict=False)}
    if len(full) != len(local) or len(pairs) != 1:
        return None
    ((wide, narrow),) = pairs
    if wide % narrow == 0:
        return Fit(layers_a_place=wide // narrow)
    return Fit(pages_a_block=narrow // wide) if narrow % wide == 0 else None
