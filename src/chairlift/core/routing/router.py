"""The base class of routing rules: which replica a request goes to.

Named like its option, `--router`. A rule sees what is known of the replicas and never talks to them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from chairlift.core.routing.replicas import Replicas


class Asked(NamedTuple):
    """A request that is to be sent somewhere."""

    num_tokens: int  # to compute where nothing of it is cached: prompt, and output that another replica made
    span: int  # tokens that a hash names
    hashes: Sequence[bytes]  # of its whole spans; () unless the rule's `needs_hashes`
    user: str


class Router(ABC):
    needs_hashes: ClassVar[bool] = False  # whether it looks at prefixes: hashing a prompt takes time
    rebalance: float = 0.0  # seconds between two looks for requests that had better wait elsewhere; 0: none

    @abstractmethod
    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        """One of `among`, the bits of the replicas that may take the request; never empty. With `rebalance`, a request
        that waits is asked about again, and may stay where it is."""


def rebalance_period(rebalance: float) -> float:
    """A rule's parameter of that name."""
    if not (rebalance == 0 or 0.05 <= rebalance <= 60):
        raise ValueError("rebalance must be 0, or from 0.05 to 60 seconds")
    return rebalance
