"""Which captured step a step runs as: the number of its tokens, of those that are computed row by row, of its tiles of
queries and of its samples, the tiling of contexts, and whether rows have adapters.

Always: what is captured for a key computes every step that has it. Each key is a graph to capture, so there are few:
tokens are padded to a rung of the ladder, tiles to what as many tokens may have, all else to powers of two, and more
coarsely where prompts are computed, whose products outweigh the padding. Without torch.
"""

from collections.abc import Iterable
from itertools import pairwise, product, starmap
from typing import NamedTuple

from chairlift.core.limits import Limits
from chairlift.runner.cuda.attention.tiling import Tiling, choose_tiling
from chairlift.runner.cuda.step.layout import QUERIES

MAX_GRAPHS = 320  # kept at once, and as many again where steps may have adapters
# Contexts of more than so many tokens are captured when they come; where they are cut finely, and where many rows
# decode, from fewer on.
_LIKELY_CONTEXT = 16384
_LIKELY_FINE_CONTEXT = 4096
_CROWDED = ((136, 16384), (512, 4096), (1 << 30, 256))  # rows, context
# Where cuBLAS multiplies well, by measuring on an H200: 448 rows take a third longer than 456 there.
# `benchmarks/gpu/rungs.py` measures it and finds these.
_SMALL = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 104, 136, 152, 184, 200, 216, 256, 280, 312, 344, 376, 408, 456, 512)
_MIDDLE = (568, 632, 696, 760, 824, 888, 1024)
_LARGE = 128  # between further rungs
_FEWER = 8  # than multiples of that, for which cuBLAS often chooses worse
LONG = _MIDDLE[-1]  # a longer step takes the device longer than the host needs to launch it kernel by kernel
_WITH_TILES = frozenset((64, 104, 152, 200, 256, 280, 312, 376, 456, 512))  # of the small ones
_ROWS = (16, 64, 256)  # of a step with tiles, beside them
_FEWEST = _ROWS[0]
_BY_LIBRARY = 104  # rows that no kernel of ours multiplies
_MORE_SAMPLES = 16  # than rows: of prompts that end
_MORE_TILES = 16  # than those of a single chunk with all tokens
_CONTEXTS = tuple(4**power for power in range(5, 16))  # of rows beside tiles
_ALL_SAMPLED = 136  # rows whose logits should take no longer than those of one: reading the weights takes longest
_SAMPLED = 64  # of more rows, the fewest
_FEW_PARTS = 4096  # of attention, that find room in the memory of any large step


def ladder(limits: Limits) -> tuple[int, ...]:
    """Numbers of tokens; the last holds the largest step that is captured."""
    most = max(limits.max_step_tokens, limits.max_running)
    if most > _MIDDLE[-1]:
        first = _MIDDLE[-1] + _LARGE - _FEWER
        return (*_SMALL, *_MIDDLE, *range(first, most, _LARGE), -(-most // _FEWER) * _FEWER)
    rungs = _SMALL + _MIDDLE
    return rungs[: next(index for index, rung in enumerate(rungs) if rung >= most) + 1]


def max_tiles(num_tokens: int) -> int:
    """Of a captured step with so many tokens."""
    return num_tokens // QUERIES + _MORE_TILES


def max_samples(limits: Limits) -> int:
    """Of a captured step."""
    return _power_of_two(max(limits.max_running, _FEWEST)) + _MORE_SAMPLES


def max_graphs(limits: Limits) -> int:
    return MAX_GRAPHS * (2 if limits.num_adapter_slots else 1)


class GraphKey(NamedTuple):
    num_tokens: int
    num_short: int  # rows in front that no tile answers
    tiling: Tiling
    num_tiles: int
    num_samples: int
    has_adapters: bool = False

    @property
    def is_cut(self) -> bool:
        """Only rows whose logits are wanted go on after the last attention."""
        return self.num_samples < self.num_tokens

    @property
    def num_parts(self) -> int:
        """Of attention that wait to be joined: they take memory."""
        return self.num_short * self.tiling.num_splits if self.tiling.num_splits > 1 else 0

    @property
    def num_spans(self) -> int:
        """Chunks that such a step may have."""
        return min(self.num_tokens, self.num_short + self.num_tiles)

    @property
    def is_single(self) -> bool:
        """Layers with states have tokens of one tile of each chunk: others run as a step with tiles of queries."""
        return self.num_tiles == 0

    def num_units(self, tile: int) -> int:
        """Tiles of so many tokens that these may have tokens in, the first and the last of each in part."""
        return min(self.num_tokens, self.num_tokens // tile + 2 * self.num_spans)

    @property
    def kernel_tiling(self) -> Tiling:
        """As far as it decides on kernels: a single row has one for each number of splits."""
        tiling = self.tiling
        return tiling if self.num_tokens == 1 else tiling._replace(num_splits=min(2, tiling.num_splits))


class GraphKeys:
    def __init__(self, limits: Limits, has_groups: bool, exact: bool) -> None:
        """has_groups: several query heads share keys and values."""
        self._has_groups = has_groups
        self._exact = exact
        is_coarse = has_groups and not exact  # contexts are cut into few stretches, so padding costs little
        self._contexts, self._long_contexts = _CONTEXTS[is_coarse:], _CONTEXTS[1 + is_coarse :: 2]
        self._likely_context = _LIKELY_CONTEXT if is_coarse else _LIKELY_FINE_CONTEXT
        self.ladder = ladder(limits)
        self.max_tokens = self.ladder[-1]
        self._with_tiles = [
            rung for rung in self.ladder if rung in _WITH_TILES or rung > _SMALL[-1] or rung == self.max_tokens
        ]
        self.max_decodes = next(rung for rung in self.ladder if rung >= limits.max_running)
        self._longest = _power_of_two(limits.max_model_len)  # context
        self.max_samples = max_samples(limits)
        # Captured first, its memory holds all others.
        self.largest = self._mixed(self.max_tokens, limits.max_running, self._longest)
        self.small = self._mixed(
            next(rung for rung in self._with_tiles if rung >= min(_BY_LIBRARY, self.max_tokens)), 1, 1
        )
        found = dict.fromkeys((*self._decodes(limits.max_running), *self._prompts()))
        plain = [key for key in found if key.num_parts <= max(self.largest.num_parts, _FEW_PARTS)]
        self.likely = plain + [key._replace(has_adapters=True) for key in plain if limits.num_adapter_slots]
        # Not captured ahead, but their kernels are compiled.
        self.unlikely = list(dict.fromkeys(starmap(self._row_by_row, product(self.ladder, self._all_contexts()))))

    def tiling_of(self, num_tokens: int, num_short: int, max_context: int, has_tiles: bool) -> Tiling:
        """Of a step that is not captured: as of one like it that is, whose kernels are compiled by now."""
        rungs = self._with_tiles if has_tiles else self.ladder
        rung = next((rung for rung in rungs if rung >= num_tokens), rungs[-1])
        return self._mixed(rung, num_short, max_context).tiling if has_tiles else self._tiling(rung, max_context)

    def of(
        self, num_tokens: int, num_short: int, max_context: int, num_tiles: int, num_samples: int
    ) -> GraphKey | None:
        """max_context: of the short rows. None: such a step is not captured."""
        rungs = self._with_tiles if num_tiles else self.ladder
        rung = next((rung for rung in rungs if rung >= max(num_tokens, num_samples)), None)
        if rung is None or num_tiles > max_tiles(rung) or num_samples > self.max_samples:
            return None
        if num_tiles:
            num_rows = max(num_short, num_samples - _MORE_SAMPLES)
            return self._mixed(rung, num_rows, max_context) if num_rows <= self.max_samples - _MORE_SAMPLES else None
        key = self._row_by_row(rung, max_context)
        if rung <= _ALL_SAMPLED or 2 * num_samples > rung:
            return key
        return key._replace(num_samples=min(max(_SAMPLED, _power_of_two(num_samples)), self.max_samples))

    def _tiling(self, num_rows: int, max_context: int) -> Tiling:
        return choose_tiling(num_rows, _power_of_two(max_context), self._has_groups, self._exact)

    def _mixed(self, rung: int, num_rows: int, max_context: int) -> GraphKey:
        """With tiles. Rows and stretches of contexts that are padding end at once."""
        is_long = rung > LONG
        rows = next((rows for rows in _ROWS[is_long:] if rows >= num_rows), _power_of_two(num_rows))
        rows = min(rows, rung, self.max_samples - _MORE_SAMPLES)
        contexts = self._long_contexts if is_long else self._contexts
        context = min(self._longest, next(each for each in contexts if each >= max_context))
        num_samples = min(rows + _MORE_SAMPLES, rung)
        return GraphKey(rung, rows, self._tiling(rows, context), max_tiles(rung), num_samples)

    def _decodes(self, max_running: int) -> Iterable[GraphKey]:
        """Of any number, and short prompts, short contexts first."""
        rungs = [rung for last, rung in pairwise((0, *self.ladder)) if last < max_running or rung <= _ALL_SAMPLED]
        contexts = [each for each in self._all_contexts() if each <= self._likely_context]
        longest = {rung: next(context for most, context in _CROWDED if rung <= most) for rung in rungs}
        pairs = [(rung, each) for each in contexts for rung in rungs if each <= longest[rung]]
        return starmap(self._row_by_row, pairs)

    def _row_by_row(self, rung: int, max_context: int) -> GraphKey:
        return GraphKey(rung, rung, self._tiling(rung, max_context), 0, min(rung, self.max_samples))

    def _all_contexts(self) -> list[int]:
        return [1 << power for power in range(self._longest.bit_length())]

    def _prompts(self) -> Iterable[GraphKey]:
        """Beside few decodes, some, and many; long ones last."""
        contexts = [each for each in self._contexts if each <= self._likely_context]
        return (self._mixed(*each) for each in product(self._with_tiles, _ROWS, contexts))


def _power_of_two(count: int) -> int:
    """The least that is not smaller."""
    return 1 << max(0, count - 1).bit_length()
