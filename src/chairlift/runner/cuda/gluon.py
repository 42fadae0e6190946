"""What the kernels for Hopper share in Gluon, Triton's lower language, in which a kernel itself says what lies in
shared memory and which warps do what: layouts, barriers, activations.

Without torch: kernels are compiled by processes that do not wait for it.
"""

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LINE = gl.constexpr(64)  # numbers of 16 bits that one line of a tile has in shared memory: 128 bytes
# Its name differs from version to version.
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # of the warps that run the same function


def lines() -> Any:
    """The layout of lines that tensor cores and the copy engine agree on; kernels name it themselves."""
    return gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)


@gluon.jit
def activated(gate, up, ACTIVATION: gl.constexpr):
    """As `activated` of the plain kernels."""
    exponent = -gate
    if ACTIVATION == "gelu_tanh":
        exponent = gate * (gate * gate * -0.0713548162726 - 1.59576912160573)
    if ACTIVATION == "clamped":
        gate = gl.where(gate > 7.0, 7.0, gate)  # NaN stays NaN
        up = gl.where(up > 7.0, 7.0, gl.where(up < -7.0, -7.0, up)) + 1.0
        exponent = gate * -1.702
    return gate / (1.0 + gl.exp(exponent)) * up
