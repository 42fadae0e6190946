"""Penalties by the tokens of each request, which lie beside its keys and values; in Triton.

The cache keeps the token that was computed in each slot. So block tables lead to tokens as to keys and values, and what
is shared, copied or moved brings its tokens along.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count"])
def resolve_tokens_kernel(known, refs, slots, last, tokens, cached_tokens, count, BLOCK: tl.constexpr):
    """tokens: what each row of the step computes; not known: what its request sampled last. They go into their slots of
    cached_tokens too. Padding has no slot."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_row = rows < count
    ref = tl.load(refs + rows, mask=is_row, other=-1)
    token = tl.load(known + rows, mask=is_row, other=0)
    token = tl.where(ref >= 0, tl.load(last + ref, mask=ref >= 0, other=0).to(tl.int32), token)
    tl.store(tokens + rows, token.to(tl.int64), mask=is_row)
    slot = tl.load(slots + rows, mask=is_row, other=-1)
    tl.store(cached_tokens + slot, token, mask=slot >= 0)


@triton.jit(do_not_specialize=["penalties"])
def count_kernel(
    penalties, tables, cached_tokens, counts, table_width, vocab,
    WIDTH: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """counts [penalised rows, vocab], 0 before: 2 for each time a token is in the output, 1 if it is in the prompt."""
    penalty = penalties + tl.program_id(0) * WIDTH
    tokens, places, is_there = _context(penalty, tables, cached_tokens, table_width, SIZE, BLOCK)
    is_prompt = places < tl.load(penalty + 3)
    own = counts + tl.program_id(0).to(tl.int64) * vocab + tokens
    tl.atomic_or(own, 1, mask=is_there & is_prompt, sem="relaxed")
    tl.atomic_add(own, 2, mask=is_there & (is_prompt == 0), sem="relaxed")


@triton.jit(do_not_specialize=["penalties"])
def penalise_kernel(
    logits, penalties, tables, cached_tokens, counts, table_width, vocab,
    WIDTH: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Changes the logits of counted tokens and clears the counts: the program that finds a count changes the logit."""
    penalty = penalties + tl.program_id(0) * WIDTH
    tokens, _, is_there = _context(penalty, tables, cached_tokens, table_width, SIZE, BLOCK)
    own = counts + tl.program_id(0).to(tl.int64) * vocab + tokens
    count = tl.atomic_xchg(own, 0, mask=is_there, sem="relaxed")
    is_mine = is_there & (count > 0)
    repetition = tl.load(penalty + 4).to(tl.float32, bitcast=True)
    presence = tl.load(penalty + 5).to(tl.float32, bitcast=True)
    frequency = tl.load(penalty + 6).to(tl.float32, bitcast=True)
    place = logits + tl.load(penalty).to(tl.int64) * vocab + tokens
    value = tl.load(place, mask=is_mine, other=0.0)
    value = tl.where(value > 0, tl.div_rn(value, repetition), value * repetition)
    times = (count >> 1).to(tl.float32)  # in the output
    value = tl.where(times > 0, value - (presence + frequency * times), value)
    tl.store(place, value, mask=is_mine)


@triton.jit
def _context(penalty, tables, cached_tokens, table_width, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """A stretch of a penalised request's context: (tokens, their places, which are there)."""
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_there = places < tl.load(penalty + 2)
    table = tables + tl.load(penalty + 1).to(tl.int64) * table_width
    blocks = tl.load(table + places // SIZE, mask=is_there, other=0).to(tl.int64)
    tokens = tl.load(cached_tokens + blocks * SIZE + places % SIZE, mask=is_there, other=0)
    return tokens, places, is_there


@triton.jit(do_not_specialize=["changes", "count"])
def change_kernel(logits, changes, count, vocab, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Adds to single logits; of two changes to one at least one is infinite, so that their order does not matter."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_row = rows < count
    change = changes + rows * WIDTH
    row = tl.load(change, mask=is_row, other=0).to(tl.int64)
    token = tl.load(change + 1, mask=is_row, other=0)
    added = tl.load(change + 2, mask=is_row, other=0).to(tl.float32, bitcast=True)
    tl.atomic_add(logits + row * vocab + token, added, mask=is_row, sem="relaxed")
