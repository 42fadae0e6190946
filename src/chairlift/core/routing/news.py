"""What an engine tells routers of its prefix index: hashes of the spans published and lost since the last time.

Always: `whole` is what all changes so far add up to. A span is there as long as its last block is; prefixes are
overwritten from their ends, so the blocks before are there too. A prefix may be indexed again while an older block of
it waits to be overwritten, so hashes are counted. A block whose predecessor has left the index is not told of: no
search finds it.
"""

from typing import NamedTuple

from chairlift.core.ids import Content
from chairlift.core.packed import TOKEN_BYTES
from chairlift.core.routing.prefixes import hash_after, root_of

_new = tuple.__new__  # a named tuple made without the call of its own constructor takes half the time


class PrefixChanges(NamedTuple):
    version: int  # one more than that of the changes before
    published: list[bytes]
    lost: list[bytes]


class _Place(NamedTuple):
    """Where an indexed block ends."""

    before: bytes  # the hash of the last whole span
    rest: bytes  # the tokens since, packed; none where a span ends


class PrefixNews:
    """Fed by a block pool."""

    def __init__(self, span: int) -> None:
        """`span`: tokens, in whole blocks of the pool."""
        self.version = 0  # of the last changes taken
        self.span = span
        self._num_bytes = TOKEN_BYTES * span
        self._places: dict[Content, _Place] = {}  # of indexed blocks, by content
        self._counts: dict[bytes, int] = {}
        self._changed: dict[bytes, bool] = {}  # whether it is there; since the last `take`

    def published(self, content: int, before: Content, tokens: bytes, known: bytes | None = None) -> None:
        """`known`: the hash up to the end of these tokens, if it was made."""
        place = _Place(root_of(before), b"") if isinstance(before, str) else self._places.get(before)
        if place is None:
            return
        last, rest = place
        rest += tokens
        if len(rest) < self._num_bytes:
            self._places[content] = _new(_Place, (last, rest))
            return
        found = known or hash_after(last, rest)
        self._places[content] = _new(_Place, (found, b""))
        count = self._counts[found] = self._counts.get(found, 0) + 1
        if count == 1:
            self._changed[found] = True

    def lost(self, content: int) -> None:
        place = self._places.pop(content, None)
        if place is None or place.rest:
            return
        found = place.before
        self._counts[found] -= 1
        if not self._counts[found]:
            del self._counts[found]
            self._changed[found] = False

    def would_tell(self, content: int) -> bool:
        """Whether losing this block may change what is told."""
        place = self._places.get(content)
        return place is not None and not place.rest

    def take(self) -> PrefixChanges | None:
        """The changes since the last call, if any."""
        if not self._changed:
            return None
        changed, self._changed = self._changed, {}
        self.version += 1
        published = [each for each, is_there in changed.items() if is_there]
        return PrefixChanges(self.version, published, [each for each, is_there in changed.items() if not is_there])

    def whole(self) -> PrefixChanges:
        """Everything that is indexed, as of the last changes taken; to be called right after `take`."""
        return PrefixChanges(self.version, list(self._counts), [])
