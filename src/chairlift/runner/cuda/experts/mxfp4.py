"""Weights of four bits as kernels read them: groups of 32 along a row share a power of two (MXFP4).

    bytes    [lines, width / 2]    byte i of a group: column i in its low half, column 16 + i in its high half
    scales   [lines, width / 32]   the power of two plus 127

A half byte is a sign, two bits of exponent and one of fraction: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Without torch: kernels are
compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl

GROUP = tl.constexpr(16)  # bytes that share a scale


@triton.jit
def widened(packed, powers, LINES: tl.constexpr, BYTES: tl.constexpr):
    """packed [LINES, BYTES], powers [LINES, BYTES / 16] -> numbers of the low halves and of the high ones, float32

    The bits of a half byte are put where a float has its sign, exponent and fraction, which gives the number times
    2 ** -126; so a scale is its power of two times 2 ** 126, and at most 2 ** 127."""
    # A float of these bits of exponent is 2 ** (power - 127 + 126).
    scale = ((powers.to(tl.int32) + 126) << 23).to(tl.float32, bitcast=True)
    scale = tl.reshape(tl.broadcast_to(scale[:, :, None], [LINES, BYTES // GROUP, GROUP]), [LINES, BYTES])
    wide = packed.to(tl.int32)
    low = ((wide & 7) << 22) | ((wide & 8) << 28)
    high = ((wide & 0x70) << 18) | ((wide & 0x80) << 24)
    return low.to(tl.float32, bitcast=True) * scale, high.to(tl.float32, bitcast=True) * scale
