"""Which pages hold the last block of an indexed content, for layers with windows.

Always: a page belongs to one content at most, and a content has pages of all groups or none.
"""

from collections.abc import Iterator, Sequence

from chairlift.core.ids import BlockId, Content


class WindowPages:
    def __init__(self) -> None:
        self._pages: dict[Content, tuple[BlockId, ...]] = {}
        self._contents: dict[BlockId, Content] = {}

    def __contains__(self, page: BlockId) -> bool:
        return page in self._contents

    def __iter__(self) -> Iterator[BlockId]:
        return iter(self._contents)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WindowPages) and (self._pages, self._contents) == (other._pages, other._contents)

    @property
    def contents(self) -> set[Content]:
        return set(self._pages)

    def content_of(self, page: BlockId) -> Content:
        return self._contents[page]

    def add(self, content: Content, pages: Sequence[BlockId]) -> None:
        """Unless the content has pages already: these then stay private."""
        if content not in self._pages:
            self._pages[content] = tuple(pages)
            self._contents.update(dict.fromkeys(pages, content))

    def drop(self, content: Content) -> tuple[BlockId, ...]:
        """Forget the pages of a content."""
        pages = self._pages.pop(content, ())
        for page in pages:
            del self._contents[page]
        return pages

    def usable(self, contents: Sequence[Content], num_seen: int) -> tuple[int, list[BlockId]]:
        """Of the prefixes that end with these contents, one after the other: the longest of whose last `num_seen`
        blocks the pages are there, by its number of blocks; and these pages."""
        num_usable = num_before = 0  # blocks; of those before the next: the last ones without a gap
        for count, content in enumerate(contents, 1):
            num_before = num_before + 1 if content in self._pages else 0
            if num_before >= min(count, num_seen):
                num_usable = count
        seen = contents[max(0, num_usable - num_seen) : num_usable]
        return num_usable, [page for content in seen for page in self._pages[content]]
