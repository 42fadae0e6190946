"""Which pages hold what layers of a kind keep at the end of an indexed content.

Always: a page belongs to one content at most, and a content has all pages that the kind keeps of a block, or none.
"""

from collections.abc import Iterator, Sequence

from chairlift.core.ids import BlockId, Content


class Beside:
    def __init__(self) -> None:
        self._pages: dict[Content, tuple[BlockId, ...]] = {}
        self._contents: dict[BlockId, Content] = {}

    def __contains__(self, page: BlockId) -> bool:
        return page in self._contents

    def __iter__(self) -> Iterator[BlockId]:
        return iter(self._contents)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Beside) and (self._pages, self._contents) == (other._pages, other._contents)

    @property
    def contents(self) -> set[Content]:
        return set(self._pages)

    def has(self, content: Content) -> bool:
        return content in self._pages

    def of(self, contents: Sequence[Content]) -> list[BlockId]:
        return [page for content in contents for page in self._pages[content]]

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
