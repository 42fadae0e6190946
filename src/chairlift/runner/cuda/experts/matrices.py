"""Experts' matrices as kernels read them."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class CudaExperts:
    """A matrix of each expert."""

    matrix: Tensor  # [X, out, in]; in MXFP4 bytes [X, out, in / 2]
    bias: Tensor | None  # [X, out]
    scales: Tensor | None = None  # in MXFP4, bytes [X, out, in / 32]

    @property
    def num_outputs(self) -> int:
        return self.matrix.shape[1]
