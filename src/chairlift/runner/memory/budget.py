"""A GPU's memory by use, and what is left of it for the KV cache. Knows numbers alone."""

from dataclasses import dataclass, replace

from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits

_GIB = 2**30
_ROUNDING = 2 * 2**20  # each tensor of a cache takes a multiple of this
_USEFUL_TOKENS = 256  # a smaller cache is refused


@dataclass(frozen=True, slots=True)
class Budget:
    """In bytes. Always: the parts add up to `total`."""

    total: int
    others: int  # in use before loading: other programs, and the driver's part for this one
    weights: int
    activations: int  # of the largest step
    graphs: int  # captured steps
    kv: int = 0

    @property
    def free(self) -> int:
        return self.total - self.others - self.weights - self.activations - self.graphs - self.kv

    def in_words(self) -> str:
        return f"GPU memory of {gib(self.total)} GiB: {self._parts()}, KV cache {gib(self.kv)}, free {gib(self.free)}"

    def num_blocks_within(self, share: float, block_bytes: int, limits: Limits, num_tensors: int) -> int:
        """Blocks, cut into so many tensors, that fit a share of the memory; refused when they are too few to use."""
        room = max(0, self.free - int((1.0 - share) * self.total) - num_tensors * _ROUNDING)
        num_blocks = room // block_bytes
        num_tokens = replace(limits, num_blocks=num_blocks).max_pool_tokens if num_blocks else 0
        if num_tokens < min(limits.max_model_len, _USEFUL_TOKENS):
            raise InvalidConfig(
                f"memory {share:g} of the GPU's {gib(self.total)} GiB leaves {gib(room)} for keys and values, "
                f"{num_tokens} tokens ({self._parts()}); raise --memory or lower --max-step-tokens, --max-running or "
                "--max-model-len"
            )
        return num_blocks

    def _parts(self) -> str:
        return (
            f"weights {gib(self.weights)}, activations {gib(self.activations)}, graphs {gib(self.graphs)}, "
            f"others {gib(self.others)}"
        )


def check_weights(need: int, total: int, used: int, share: float, ways_out: str) -> None:
    """Refuses weights that cannot fit, before any is read."""
    room = max(0, int(share * total) - used)
    if need > room:
        raise InvalidConfig(
            f"the weights need {gib(need)} GiB and memory {share:g} of the GPU's {gib(total)} GiB leaves {gib(room)} "
            f"({gib(used)} are in use); use {ways_out}"
        )


def gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:.1f}"
