"""The numbers that name things: requests and blocks."""

from typing import NewType

RequestId = NewType("RequestId", int)
BlockId = NewType("BlockId", int)
