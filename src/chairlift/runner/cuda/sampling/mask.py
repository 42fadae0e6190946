"""Forbidding tokens by rows of bits in Triton: for answers that are held to a shape."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def mask_kernel(logits, rows, words, vocab, num_words, TILE: tl.constexpr):
    """A tile of a row a program. Bit t % 32 of words[i, t // 32] says whether token t may come in logits[rows[i]]."""
    index = tl.program_id(0).to(tl.int64)
    tokens = tl.program_id(1) * TILE + tl.arange(0, TILE)
    row = tl.load(rows + index).to(tl.int64)
    bits = tl.load(words + index * num_words + tokens // 32, mask=tokens < vocab, other=-1)
    is_forbidden = ((bits >> (tokens % 32)) & 1) == 0
    tl.store(logits + row * vocab + tokens, float("-inf"), mask=is_forbidden & (tokens < vocab))
