"""Weights of four bits as kernels read them: groups of 32 along a row share a power of two (MXFP4).

    bytes    [lines, width / 2]    byte i of a group: column i in its low half, column 16 + i in its high half
    scales   [lines, width / 32]   the power of two plus 127

A half byte is a sign, two bits of exponent and one of fraction: 0, 0.5, 1, 1.5, 2, 3, 4, 6. Its bits are put where a
wider number has its sign, exponent and fraction, which gives the number times 2 ** -126; so a scale is its power of two
times 2 ** 126, and at most 2 ** 127. Without torch: kernels are compiled by processes that do not wait for it.
"""

import triton
import triton.language as tl
from triton import knobs

GROUP = tl.constexpr(16)  # bytes that share a scale
_HAS_ASSEMBLY = tl.constexpr(not knobs.runtime.interpret)
# Four bytes, and the scales of the first two and of the others, each twice a bf16 -> the four low halves and the four
# high ones, times the scales: two numbers at a time, where the compiler would take them one by one. The sign of a byte
# is repeated into the byte above it (prmt), so a half byte's sign and bits come into place by one shift and one mask;
# low halves are moved up first.
WIDEN = tl.constexpr("""{
.reg .b32 low, two, none;
mov.b32 none, 0x80008000;
shl.b32 low, $4, 4;
prmt.b32 two, low, 0, 0x9180;
shl.b32 two, two, 2;
and.b32 two, two, 0x81C081C0;
fma.rn.bf16x2 $0, two, $5, none;
prmt.b32 two, low, 0, 0xB3A2;
shl.b32 two, two, 2;
and.b32 two, two, 0x81C081C0;
fma.rn.bf16x2 $1, two, $6, none;
prmt.b32 two, $4, 0, 0x9180;
shl.b32 two, two, 2;
and.b32 two, two, 0x81C081C0;
fma.rn.bf16x2 $2, two, $5, none;
prmt.b32 two, $4, 0, 0xB3A2;
shl.b32 two, two, 2;
and.b32 two, two, 0x81C081C0;
fma.rn.bf16x2 $3, two, $6, none;
}""")


@triton.jit
def widened(packed, powers, LINES: tl.constexpr, BYTES: tl.constexpr):
    """packed [LINES, BYTES], powers [LINES, BYTES / 16] -> numbers of the low halves and of the high ones, float32

    For tensor cores: with `widened_by_two` tiles of 128 rows gave NaN on an H200."""
    # A float of these bits of exponent is 2 ** (power - 127 + 126).
    scale = ((powers.to(tl.int32) + 126) << 23).to(tl.float32, bitcast=True)
    scale = tl.reshape(tl.broadcast_to(scale[:, :, None], [LINES, BYTES // GROUP, GROUP]), [LINES, BYTES])
    wide = packed.to(tl.int32)
    low = ((wide & 7) << 22) | ((wide & 8) << 28)
    high = ((wide & 0x70) << 18) | ((wide & 0x80) << 24)
    return low.to(tl.float32, bitcast=True) * scale, high.to(tl.float32, bitcast=True) * scale


@triton.jit
def widened_by_two(packed, powers):
    """packed [lines, groups, 16], powers [lines, groups] -> numbers of the low halves and of the high ones, bf16"""
    scale = ((powers.to(tl.int16) + 126) << 7).to(tl.bfloat16, bitcast=True)[:, :, None]
    if _HAS_ASSEMBLY:
        return tl.inline_asm_elementwise(
            WIDEN, "=r,=r,=r,=r,r,r,r", [packed, tl.broadcast_to(scale, packed.shape)],
            dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4,
        )  # fmt: skip
    wide = packed.to(tl.int32)
    low = ((wide & 7) << 6) | ((wide & 8) << 12)
    high = ((wide & 0x70) << 2) | ((wide & 0x80) << 8)
    return _times(low, scale), _times(high, scale)


@triton.jit
def _times(bits, scale):
    """In float32: the interpreter has no bf16 of its own"""
    return ((bits << 16).to(tl.float32, bitcast=True) * scale.to(tl.float32)).to(tl.bfloat16)
