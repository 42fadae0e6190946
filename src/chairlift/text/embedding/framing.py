"""The tokens around a text, or around and between two, that a model's makers trained it with.

    [CLS] text [SEP]      <s> first </s></s> second </s>      text <|endoftext|>

Found from what the tokenizer makes of letters, so a text of any length can be framed, and cut to fit.
"""

from dataclasses import dataclass

from chairlift.text.tokenizer import Tokenizer

_PROBES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Framing:
    before: tuple[int, ...]
    after: tuple[int, ...]
    between: tuple[int, ...] = ()  # of a pair
    pair_before: tuple[int, ...] = ()
    pair_after: tuple[int, ...] = ()
    num_first: int = 0  # tokens of `between` that belong to the first text

    @property
    def size(self) -> int:
        """Tokens beside those of a text."""
        return len(self.before) + len(self.after)

    @property
    def pair_size(self) -> int:
        return len(self.pair_before) + len(self.between) + len(self.pair_after)

    def single(self, ids: list[int], max_len: int) -> list[int]:
        """Cut at its end to so many tokens, those around it included."""
        return [*self.before, *ids[: max(0, max_len - self.size)], *self.after]

    def pair(self, first: list[int], second: list[int], max_len: int) -> tuple[list[int], int]:
        """The longer of the two is cut; and where the second begins."""
        room = max(0, max_len - self.pair_size)
        keep = min(len(first), max(room // 2, room - len(second)))
        first, second = first[:keep], second[: room - keep]
        head = [*self.pair_before, *first, *self.between]
        begins = len(head) - len(self.between) + self.num_first
        return [*head, *second, *self.pair_after], begins


def framing_of(tokenizer: Tokenizer) -> Framing:
    first, second = (tuple(tokenizer.encode(probe, add_special=False)) for probe in _PROBES)
    single, _ = tokenizer.framed(_PROBES[0])
    at = _find(single, first, 0)
    pair, types = tokenizer.framed(*_PROBES)
    in_pair = _find(pair, first, 0)
    end = in_pair + len(first)
    begins = _find(pair, second, end)
    return Framing(
        before=tuple(single[:at]),
        after=tuple(single[at + len(first) :]),
        between=tuple(pair[end:begins]),
        pair_before=tuple(pair[:in_pair]),
        pair_after=tuple(pair[begins + len(second) :]),
        num_first=types[end:begins].count(0),
    )


def _find(ids: list[int], part: tuple[int, ...], start: int) -> int:
    places = range(start, len(ids) - len(part) + 1)
    return next((i for i in places if tuple(ids[i : i + len(part)]) == part), start)
