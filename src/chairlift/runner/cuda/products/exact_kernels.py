"""The kernels of `--exact` beside attention's, in Triton: the product and the log-sum-exp of logits.

Always: a row is computed in one order, whatever shares the launch.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous
from chairlift.runner.cuda.kernels import activated


@triton.jit(do_not_specialize=["num_rows"])
def product_kernel(
    x, weight, out, num_rows, num_outputs, width,
    OUTPUTS: tl.constexpr, NUM_FULL: tl.constexpr, ROWS: tl.constexpr, STRETCH: tl.constexpr,
    IS_FULL: tl.constexpr, IS_EVEN: tl.constexpr, ACTIVATION: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """x [num_rows, width], weight [num_outputs, width] -> out [num_rows, num_outputs]

    The weight comes first: tensor cores take 16 or 64 lines of what is first, but as few as 8 of what is second, and a
    small step has more outputs than rows. Where 64 outputs a program leave processors idle, it takes fewer (NUM_FULL),
    and the other lines are empty. IS_FULL: no line is; IS_EVEN: all stretches are as long.

    ACTIVATION, unless it is empty: weight [2 * num_outputs, width] -> activation(first half of the product) * second
    half, as `activate_kernel` has it. Half of a program's lines are of the first half, the others go with them.
    """
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    num_blocks = tl.cdiv(num_rows, ROWS)
    program = tl.program_id(0)  # those of the same weights follow each other
    rows = program % num_blocks * ROWS + tl.arange(0, ROWS)
    is_row = rows < num_rows
    lines = tl.arange(0, OUTPUTS)
    HALF: tl.constexpr = OUTPUTS // 2
    if ACTIVATION != "":
        outputs = program // num_blocks * HALF + lines % HALF
        is_output = outputs < num_outputs
        places = outputs + lines // HALF * num_outputs
    else:
        outputs = program // num_blocks * NUM_FULL + lines
        is_output = (outputs < num_outputs) & (lines < NUM_FULL)
        places = outputs
    columns = tl.arange(0, STRETCH)
    from_x = x + rows[:, None].to(tl.int64) * width + columns[None, :]
    from_weight = weight + places[:, None].to(tl.int64) * width + columns[None, :]
    policy: tl.constexpr = "evict_first" if ROWS == 16 else ""  # few rows are one block: they are read once
    sums = tl.zeros([OUTPUTS, ROWS], dtype=tl.float32)
    for low in range(0, width, STRETCH):
        first = _load(from_weight + low, is_output[:, None], low + columns < width, IS_FULL, IS_EVEN, policy)
        second = _load(from_x + low, is_row[:, None], low + columns < width, False, IS_EVEN, "")
        sums = tl.dot(first, tl.trans(second), sums, input_precision="ieee")
    kind = out.dtype.element_ty
    if ACTIVATION != "":
        # Rounded as the product would be if it were kept.
        both = tl.reshape(sums.to(kind).to(tl.float32), [2, HALF, ROWS])
        gate, up = tl.split(tl.permute(both, (1, 2, 0)))
        sums = activated(gate, up, ACTIVATION)
        outputs = program // num_blocks * HALF + tl.arange(0, HALF)
        is_output = outputs < num_outputs
    target = out + rows[None, :].to(tl.int64) * num_outputs + outputs[:, None]
    tl.store(target, sums.to(kind), mask=is_output[:, None] & is_row[None, :])


@triton.jit
def _load(places, is_line, is_column, IS_FULL: tl.constexpr, IS_EVEN: tl.constexpr, POLICY: tl.constexpr):
    if IS_FULL and IS_EVEN:
        values = tl.load(places, eviction_policy=POLICY)
    elif IS_EVEN:
        values = tl.load(places, mask=is_line, other=0.0, eviction_policy=POLICY)
    else:
        values = tl.load(places, mask=is_line & is_column[None, :], other=0.0, eviction_policy=POLICY)
    return values


@triton.jit
def log_sum_exp_kernel(logits, norms, vocab, TILE: tl.constexpr):
    """norms[row]: the logarithm of the sum of its exponentials."""
    row = tl.program_id(0).to(tl.int64)
    x = logits + row * vocab
    places = tl.arange(0, TILE)
    tops = tl.full([TILE], float("-inf"), tl.float32)
    for low in range(0, vocab, TILE):
        tops = tl.maximum(tops, tl.load(x + low + places, mask=low + places < vocab, other=float("-inf")))
    top = tl.max(tops, axis=0)
    sums = tl.zeros([TILE], tl.float32)
    for low in range(0, vocab, TILE):
        values = tl.load(x + low + places, mask=low + places < vocab, other=float("-inf"))
        sums += tl.exp(values - top)
    tl.store(norms + row, top + tl.log(tl.sum(sums, axis=0)))
