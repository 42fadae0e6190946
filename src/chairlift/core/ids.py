"""The numbers that name things: requests, blocks, and the content of blocks."""

from typing import NewType

RequestId = NewType("RequestId", int)
BlockId = NewType("BlockId", int)

# Names what a request's first tokens are: a number once indexed; for no tokens, the salt they start from.
Content = int | str
