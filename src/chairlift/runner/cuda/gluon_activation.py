"""Activations for the kernels for Hopper, in Gluon. Without torch: kernels are compiled by processes that do not wait
for it."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


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
