"""Sources of tensors: one protocol for every kind of file, with the names of that file."""

from collections.abc import Collection
from typing import Protocol

from torch import Tensor


class TensorSource(Protocol):
    """Each tensor is read once; nothing is kept."""

    @property
    def names(self) -> Collection[str]: ...

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """In the type and on the device where it is stored or cheapest to make, perhaps a view of a mapped file.
        Raises `InvalidConfig` naming tensor and file when it is missing, damaged or of another shape."""

    def file_of(self, name: str) -> str:
        """The file of a tensor, for messages."""
