"""Which layers share pages of the cache, so that each kind of them keeps and releases its own.

Layers that see all tokens are the first group; those with a window form groups of as many, and so do those that keep a
state in place of tokens. The i-th layers of all groups share their tensors, and each group has tables of its own: so
all pages are alike, and one pool has them.

    Gemma 3, 12 layers:  w w w w w F w w w w w F      F: sees all tokens
    group                1 1 2 2 3 0 3 4 4 5 5 0
    place                0 1 0 1 0 0 1 0 1 0 1 1      two tensors of keys, two of values

A state takes several pages at its layer's place, those of all layers of a group the same ones.
"""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class KvGroups:
    groups: tuple[int, ...]  # of each layer; 0: sees all tokens, or there is one group alone
    places: tuple[int, ...]  # of each layer within its group
    declared: tuple[Group, ...] = ()  # what layers keep beside blocks of all tokens
    counts: tuple[int, ...] = ()  # groups of each of these

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
    none, all with the same window and the same shape of keys and values; and where transformers runs the model."""
    mixers = [layer.mixer for layer in config.layers]
    full = [mixer for mixer in mixers if not mixer.fixed and not mixer.reach]
    fixed = [mixer.fixed for mixer in mixers if mixer.fixed]
    if fixed and not full:
        raise InvalidConfig(f"{config.architecture}: no layer keeps all tokens, which is not supported")
    windows = {mixer.reach for mixer in mixers if mixer.reach}
    is_alike = len(windows) == 1 and len({mixer.rows for mixer in mixers if not mixer.fixed}) == 1
    if not can_group or config.fallback is not None or not full or not is_alike:
        windows = set()
    if not windows and not fixed:
        return KvGroups((0,) * config.num_layers, tuple(range(config.num_layers)))
    kinds = [2 if mixer.fixed else int(mixer.reach > 0 and bool(windows)) for mixer in mixers]
    num_full = kinds.count(0)
    counts = [0, *(-(-kinds.count(kind) // num_full) for kind in (1, 2))]  # groups beside the first
    firsts, seen = (0, 1, 1 + counts[1]), [0, 0, 0]
    groups, places = [], []
    for kind in kinds:
        index = seen[kind]
        groups.append(firsts[kind] + index // num_full)
        places.append(index % num_full)
        seen[kind] += 1
    declared = [Group("window", counts[1], max(windows))] if windows else []
    if fixed:
        page = min(sizes.page(mixer) for mixer in mixers if not mixer.fixed)
        declared.append(_fixed_group(fixed, counts[2], page, sizes))
    return KvGroups(tuple(groups), tuple(places), tuple(declared), tuple(filter(None, counts)))


def _fixed_group(fixed: list[Fixed], count: int, page: int, sizes: Sizes) -> Group:
    """page: bytes of the smallest."""
    num_state, num_tile = (max(-(-size(each) // page) for each in fixed) for size in (sizes.state, sizes.tile))
    reach = max(1, CHECKPOINT_TOKENS // sizes.block_size) * sizes.block_size
    return Group("fixed", count * num_state, reach, count * num_tile)
