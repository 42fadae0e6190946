"""The block pool: which blocks are free, how many tables list each, which prefixes they hold.

Always: every block is either free or held, and a held block's count is the number of tables that list it. A free block
is blank, or still holds an indexed prefix and waits, oldest release first, to be used again or overwritten.

    blank   [ 7 3 9 ]         taken first
    cached  [ 4 > 1 > 8 ]     hit: taken as they are; else overwritten from the left
    held      2:1  5:3  6:1   block:count

The prefix index maps (content before, the block's packed tokens) to a block. `content` is a number given once to each
distinct prefix, so equal keys mean equal prefixes from the first token on: a hit compares every token, never only a
hash.

Where some layers do not keep all tokens a block here is a page, and `beside` the index each kind of them maps a content
to its pages. A prefix can be used up to a block if layers of every kind find all that its next token sees:

    content    1   2   3   4   5
    index      F   F   F   F   F
    window     W   -   W   W   -      windows that reach two blocks back: usable up to 4

Knows nothing of requests, policies or tensors.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from chairlift.core.ids import BlockId, Content
from chairlift.core.memory.beside import Beside
from chairlift.core.memory.pages import Kind
from chairlift.core.packed import TOKEN_BYTES
from chairlift.core.routing.news import PrefixNews

_new = tuple.__new__  # a named tuple made without the call of its own constructor takes half the time

PrefixKey = tuple[Content, bytes]


class Indexed(NamedTuple):
    block: BlockId
    content: int


class Prefix(NamedTuple):
    """The longest indexed prefix of some tokens, in whole blocks."""

    blocks: list[BlockId]
    content: Content  # the index's name for what they hold
    beside: tuple[Sequence[BlockId], ...] = ()  # of each kind of layers: all that the next token sees, in order
    beyond: Sequence[BlockId] = ()  # blocks that follow in the index, where some kind cannot go on after them


class BlockPool:
    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        has_prefix_index: bool = True,
        kinds: Sequence[Kind] = (),
        news: PrefixNews | None = None,
    ) -> None:
        """kinds: of layers that do not keep all tokens. news: told of the index, for routers to know."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.has_prefix_index = has_prefix_index
        self.counts = [0] * num_blocks
        # Blocks saved by sharing: entries of all tables less the blocks they name; now, and the most there ever were.
        self.num_shared = self.max_shared = 0
        self._blank = [BlockId(b) for b in reversed(range(num_blocks))]
        self._cached: OrderedDict[BlockId, None] = OrderedDict()
        self._index: dict[PrefixKey, Indexed] = {}
        self._keys: dict[BlockId, PrefixKey] = {}
        self._num_contents = 0
        self._kinds = kinds
        self._beside = [Beside() for _ in kinds]
        self.news = news

    @property
    def num_free(self) -> int:
        return len(self._blank) + len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_free

    @property
    def num_cached(self) -> int:
        """Free blocks that still hold an indexed prefix."""
        return len(self._cached)

    def is_indexed(self, block: BlockId) -> bool:
        """Whether the index can find it."""
        return block in self._keys or any(block in beside for beside in self._beside)

    def take(self, count: int) -> list[BlockId]:
        """Blocks to write to, each held once. The caller has checked `num_free`."""
        blocks: list[BlockId] = []
        for _ in range(count):
            if self._blank:
                block = self._blank.pop()
            else:
                block, _ = self._cached.popitem(last=False)
                self._overwrite(block)
            self.counts[block] = 1
            blocks.append(block)
        return blocks

    def _overwrite(self, block: BlockId) -> None:
        """The index no longer finds what a block held."""
        key = self._keys.pop(block, None)
        if key is None:
            (beside,) = (each for each in self._beside if block in each)
            self._drop(beside, beside.content_of(block))
            return
        content = self._index.pop(key).content
        if self.news is not None:
            self.news.lost(content)
        for beside in self._beside:
            self._drop(beside, content)

    def _drop(self, beside: Beside, content: Content) -> None:
        for page in beside.drop(content):
            if page in self._cached:  # of no use without the others
                del self._cached[page]
                self._blank.append(page)

    def forget(self) -> bool:
        """Makes every free block blank; whether the index is empty, as it is when no table lists a block of it."""
        while self._cached:
            block, _ = self._cached.popitem(last=False)
            self._overwrite(block)
            self._blank.append(block)
        return not self._index

    def num_silent(self, count: int) -> int:
        """How many of the next `count` blocks can be taken before one that `news` would tell of."""
        if self.news is None:
            return count
        num_blank = len(self._blank)
        for i, block in enumerate(islice(self._cached, max(0, count - num_blank))):
            if block in self._keys and self.news.would_tell(self._index[self._keys[block]].content):
                return num_blank + i
        return count

    def share(self, blocks: Sequence[BlockId]) -> None:
        """One more table lists these blocks, free ones with content included."""
        for block in blocks:
            if self.counts[block] == 0:
                del self._cached[block]
            else:
                self.num_shared += 1
            self.counts[block] += 1
        self.max_shared = max(self.max_shared, self.num_shared)

    def renew(self, blocks: Sequence[BlockId]) -> None:
        """Those of them that are free and hold a prefix wait as if they were released now."""
        for block in reversed(blocks):
            if block in self._cached:
                self._cached.move_to_end(block)

    def release(self, blocks: Sequence[BlockId]) -> None:
        """One table less lists these blocks."""
        # Tail first: the end of a text is the part least likely to be shared again, so it is overwritten first.
        for block in reversed(blocks):
            self.counts[block] -= 1
            if self.counts[block] > 0:
                self.num_shared -= 1
            elif block in self._keys or (self._beside and self.is_indexed(block)):
                self._cached[block] = None
            else:
                self._blank.append(block)

    def find(self, root: Content, tokens: bytes, limit: int) -> Prefix:
        """The longest indexed prefix of packed tokens, at most `limit` of them; the caller shares what it uses."""
        blocks: list[BlockId] = []
        content = root
        if self.has_prefix_index:
            size = TOKEN_BYTES * self.block_size
            for start in range(0, TOKEN_BYTES * limit - size + 1, size):
                found = self._index.get((content, tokens[start : start + size]))
                if found is None:
                    break
                blocks.append(found.block)
                content = found.content
        if not self._beside:
            return Prefix(blocks, content)
        contents = [self._index[self._keys[block]].content for block in blocks]
        num_before = len(contents) + 1
        while len(contents) < num_before:  # until layers of all kinds can go on there
            num_before = len(contents)
            for kind, beside in zip(self._kinds, self._beside, strict=True):
                del contents[kind.num_usable(contents, beside.has) :]
        pages = tuple(beside.of(kind.needed(contents)) for kind, beside in zip(self._kinds, self._beside, strict=True))
        num_found = len(contents)
        return Prefix(blocks[:num_found], contents[-1] if contents else root, pages, blocks[num_found:])

    def publish(self, block: BlockId, before: Content, tokens: bytes, known: bytes | None = None) -> int:
        """Index a full, held block with these packed tokens; the name of the content up to its end. `known`: its hash
        for `news`, if it was made."""
        # Another table that lists the block came first, or an equal prefix, and then this copy stays private.
        key = (before, tokens)
        found = self._index.get(self._keys.get(block, key))
        if found is not None:
            return found[1]
        content = self._num_contents = self._num_contents + 1
        self._index[key] = _new(Indexed, (block, content))
        self._keys[block] = key
        if self.news is not None:
            self.news.published(content, before, tokens, known)
        return content

    def keep(self, place: int, content: Content, pages: Sequence[BlockId]) -> None:
        """Remember the held pages of layers of a kind at the end of an indexed content, unless others are known."""
        self._beside[place].add(content, pages)

    def kept(self, place: int, content: Content) -> Sequence[BlockId]:
        """The pages that are remembered there; none if they were overwritten."""
        return self._beside[place].of([content] if self._beside[place].has(content) else [])

    def check(self, tables: Sequence[Sequence[BlockId]]) -> None:
        """Raise AssertionError unless counts, free blocks and index agree with these tables and other holders."""
        counts = [0] * self.num_blocks
        for table in tables:
            assert len(dict.fromkeys(table)) == len(table), f"a table lists a block twice: {table}"
            for block in table:
                counts[block] += 1
        assert counts == self.counts, f"counts {self.counts} but tables say {counts}"
        assert self.num_shared == sum(count - 1 for count in counts if count), "blocks saved were not counted right"
        free = sorted([*self._blank, *self._cached])
        assert free == [b for b in range(self.num_blocks) if counts[b] == 0], "free blocks and held blocks overlap"
        assert all(self.is_indexed(block) for block in self._cached), "a cached block is not indexed"
        assert not any(self.is_indexed(block) for block in self._blank), "a blank block is indexed"
        kinds = [set(self._keys), *(set(beside) for beside in self._beside)]
        assert len(set().union(*kinds)) == sum(map(len, kinds)), "a block is of two kinds of layers"
        contents = {indexed.content for indexed in self._index.values()}
        assert all(beside.contents <= contents for beside in self._beside), "pages of a prefix that the index lacks"
        assert {i.block: key for key, i in self._index.items()} == self._keys, "index and keys disagree"
