"""The argmax of each row of logits in Triton, kept for the next step too: one kernel, where torch has a dozen."""

import triton
import triton.language as tl


@triton.jit
def argmax_kernel(logits, sample_rows, tokens, last, vocab, spare, TILE: tl.constexpr):
    """One row a program. tokens[row]: the first of the largest, -1 where some logit or the largest is not a number;
    last[sample_rows[row]]: the same, but 0 for -1; padding has sample row -1 and writes to `spare`."""
    row = tl.program_id(0).to(tl.int64)
    tops = tl.full([TILE], float("-inf"), tl.float32)
    firsts = tl.zeros([TILE], tl.int32)
    strange = tl.zeros([TILE], tl.int32)
    for low in range(0, vocab, TILE):
        places = low + tl.arange(0, TILE)
        values = tl.load(logits + row * vocab + places, mask=places < vocab, other=float("-inf"))
        strange |= (values != values).to(tl.int32)
        is_more = values > tops
        firsts = tl.where(is_more, places, firsts)
        tops = tl.where(is_more, values, tops)
    largest = tl.max(tops, axis=0)
    first = tl.min(tl.where(tops == largest, firsts, vocab), axis=0)
    is_number = (tl.max(strange, axis=0) == 0) & (largest > float("-inf")) & (largest < float("inf"))
    token = tl.where(is_number, first, -1)
    keeper = tl.load(sample_rows + row)
    tl.store(tokens + row, token.to(tl.int64))
    tl.store(last + tl.where(keeper >= 0, keeper, spare), tl.maximum(token, 0).to(tl.int64))
