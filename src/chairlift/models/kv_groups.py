"""Which layers share pages of the KV cache, so that those with a sliding window can release what lies behind it.

Layers that see all tokens are the first group; those with a window form groups of as many. The i-th layers of all
groups share one tensor, and each group has block tables of its own: so all pages are alike, and one pool has them.

    Gemma 3, 12 layers:  w w w w w F w w w w w F      F: sees all tokens
    group                1 1 2 2 3 0 3 4 4 5 5 0
    place                0 1 0 1 0 0 1 0 1 0 1 1      two tensors of keys, two of values
"""

from dataclasses import dataclass

from chairlift.core.memory.pages import Group
from chairlift.models.spec import ModelConfig


@dataclass(frozen=True, slots=True)
class KvGroups:
    groups: tuple[int, ...]  # of each layer; 0: sees all tokens, or there is one group alone
    places: tuple[int, ...]  # of each layer within its group
    window: int = 0  # of the layers of the other groups

    @property
    def num_others(self) -> int:
        """Groups beside the first."""
        return max(self.groups, default=0)

    @property
    def declared(self) -> tuple[Group, ...]:
        """What layers keep beside blocks of all tokens."""
        return (Group("window", self.num_others, self.window),) if self.num_others else ()

    def beside(self, max_model_len: int) -> tuple[Group, ...]:
        """The same, where requests have so many tokens."""
        return self.declared if self.window < max_model_len else ()  # else nothing is ever behind a window

    @property
    def num_places(self) -> int:
        """Layers of a page."""
        return max(self.places, default=-1) + 1


def kv_groups(config: ModelConfig, can_group: bool = True) -> KvGroups:
    """One group, in which every layer keeps all tokens, unless some layers have a window and others have none, all
    with the same window and the same shape of keys and values; and where transformers runs the model."""
    mixers = [layer.mixer for layer in config.layers]
    windows = {mixer.reach for mixer in mixers}
    shapes = {mixer.rows for mixer in mixers}
    window = max(windows, default=0)
    if not can_group or config.fallback is not None or windows != {0, window} or window == 0 or len(shapes) > 1:
        return KvGroups((0,) * config.num_layers, tuple(range(config.num_layers)))
    num_full = sum(not mixer.reach for mixer in mixers)
    groups, places, counts = [], [], [0, 0]  # layers so far, without a window and with
    for mixer in mixers:
        has_window = mixer.reach > 0
        index = counts[has_window]
        groups.append((1 + index // num_full) * has_window)
        places.append(index % num_full)
        counts[has_window] += 1
    return KvGroups(tuple(groups), tuple(places), window)
