"""Where tensors come from: one small protocol for every kind of file, in the names of that file."""

from collections.abc import Collection
from typing import Protocol

from torch import Tensor


class TensorSource(Protocol):
    """Each tensor is read once, when it is asked for; nothing is kept."""

    @property
    def names(self) -> Collection[str]: ...

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor where and in whatever type it is stored or cheapest to make; a view of a mapped file will do.
        Raises `InvalidConfig` naming tensor and file when it is missing, damaged or of another shape."""
        ...

    def file_of(self, name: str) -> str:
        """The file a tensor lies in, for messages."""
        ...
