"""Products of float32 numbers by tensor cores, in parts of bfloat16: each is right to 2^-16.

Always: parts are added in one order, which is that of `stream_kernel` too.
"""

import triton
import triton.language as tl


@triton.jit
def product(left, right, IS_WIDE: tl.constexpr):
    """left @ right, of which left at least is float32. A model that computes in float32 has such products, slowly."""
    if IS_WIDE:
        return tl.dot(left, right, input_precision="ieee")
    high, low = _parts(left)
    if right.dtype == tl.bfloat16:
        return tl.dot(high, right, tl.dot(low, right))
    right_high, right_low = _parts(right.to(tl.float32))
    return tl.dot(high, right_high, tl.dot(low, right_high, tl.dot(high, right_low)))


@triton.jit
def apart(left, right, IS_WIDE: tl.constexpr):
    """The same where there are many inputs: each part has a sum of its own, as a kernel that has the inputs in pieces
    adds them."""
    if right.dtype == tl.bfloat16:
        high, low = _parts(left)
        # Not as a sum: the compiler would add one product to the other, input by input.
        found = tl.dot(high, right) - (-tl.dot(low, right))
    else:
        found = product(left, right, IS_WIDE)
    return found


@triton.jit
def _parts(x):
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)
