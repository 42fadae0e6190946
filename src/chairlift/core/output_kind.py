"""What the outputs of a stream show, by vLLM's names."""

from enum import Enum


class RequestOutputKind(Enum):
    CUMULATIVE = 0  # all so far
    DELTA = 1  # what is new
    FINAL_ONLY = 2  # all, once
