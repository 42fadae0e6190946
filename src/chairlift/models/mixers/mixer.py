"""What a layer does with a token and those before it, declared: its tensors, what it keeps of a request, and its sizes.

Always: a declaration is frozen and hashable, as layers declared alike share kernels. Each mixer ends in a matrix called
"output", which takes what it gives; the layer multiplies by it.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from chairlift.models.parts import MixerTensors

if TYPE_CHECKING:
    from chairlift.models.mixers.attention import Rotation
    from chairlift.models.spec import Names


class Rows(NamedTuple):
    """A tensor of the cache that keeps something of each token."""

    num_heads: int
    width: int  # numbers of a head


class Fixed(NamedTuple):
    """What it keeps of a request that does not grow: a state after every tile of tokens, and what came in since."""

    wide: int  # numbers of a state in float32 at least
    narrow: int  # and in the model's type
    row: int  # numbers of a token of the tile that is not whole yet, in the model's type


class MixerSpec(ABC):
    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """For messages."""

    @property
    @abstractmethod
    def num_inputs(self) -> int:
        """Numbers of a token that it works on: what its matrices give."""

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """Numbers of a token that the output's matrix takes."""

    @property
    def rows(self) -> tuple[Rows, ...]:
        """What it keeps of each token, a tensor each."""
        return ()

    @property
    def fixed(self) -> Fixed | None:
        """What it keeps in their place; None: nothing."""
        return None

    @property
    def reach(self) -> int:
        """Positions whose rows a token sees, its own included; 0: all before it."""
        return 0

    @property
    def has_own_rows(self) -> bool:
        """False: it reads those of the last layer before it with the same reach that has its own."""
        return True

    @property
    def rotations(self) -> "tuple[tuple[Rotation | None, int], ...]":
        """Tables of angles that it looks up, each with the numbers that it has of a position."""
        return ()

    @abstractmethod
    def tensors(self, prefix: str, names: "Names", hidden: int) -> MixerTensors:
        """In the files. prefix: of the layer's names."""
