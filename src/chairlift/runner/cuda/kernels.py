"""The small kernels of a step in Triton: norm, rotation with the cache write, activation, rounding to fp8.

Always: a row's result is computed from its own inputs in a fixed order, whatever shares the launch.
"""

import triton
import triton.language as tl

from chairlift.runner.cuda.dependent_launch import launch_dependents, wait_for_previous

E4M3_MAX = tl.constexpr(448.0)
_MAX_WARPS = 16
_WARP_NUMBERS = 256  # of a row, for which one more warp pays


def whole_row(width: int) -> dict[str, int]:
    """Options of a launch in which each program has a whole row."""
    block = triton.next_power_of_2(width)
    return {"BLOCK": block, "num_warps": max(1, min(_MAX_WARPS, block // _WARP_NUMBERS))}


@triton.jit
def add_norm_kernel(
    x, residual, gain, bias, after, base, other, out, other_out, width, eps, end_eps, factor, scale,
    BLOCK: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_GAIN: tl.constexpr, HAS_BIAS: tl.constexpr,
    IS_CENTRED: tl.constexpr, HAS_AFTER: tl.constexpr, HAS_BASE: tl.constexpr, HAS_OTHER: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """residual = (residual + factor * x) * scale; out = residual / rms(residual) * gain + bias, centred first or not.
    One row a program.

    Without a residual the norm is x's; without a gain there is no norm. after, base: gains of norms of x and of the
    residual before they are added. other: the gain of a second norm, into other_out."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    if HAS_GAIN:
        gains = tl.load(gain + columns, mask=mask, other=0.0)
    if HAS_BIAS:
        biases = tl.load(bias + columns, mask=mask, other=0.0)
    if HAS_AFTER:
        after_gains = tl.load(after + columns, mask=mask, other=0.0)
    if HAS_BASE:
        base_gains = tl.load(base + columns, mask=mask, other=0.0)
    if HAS_OTHER:
        other_gains = tl.load(other + columns, mask=mask, other=0.0)
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    summed = tl.load(x + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        kind = residual.dtype.element_ty
        known = tl.load(residual + row * width + columns, mask=mask, other=0.0).to(tl.float32)
        # Normed numbers are rounded, as where they are kept.
        if HAS_AFTER:
            summed = _normed(summed, after_gains, width, end_eps).to(kind).to(tl.float32)
        if HAS_BASE:
            known = _normed(known, base_gains, width, end_eps).to(kind).to(tl.float32)
        summed *= factor
        summed += known
        summed *= scale
        # What the next layer adds to is the rounded sum, so the norm is taken of that.
        rounded = summed.to(kind)
        tl.store(residual + row * width + columns, rounded, mask=mask)
        summed = rounded.to(tl.float32)
    if HAS_GAIN:
        if IS_CENTRED:
            summed = tl.where(mask, summed - tl.sum(summed, axis=0) / width, 0.0)
        normed = _normed(summed, gains, width, eps)
        if HAS_BIAS:
            normed += biases
        tl.store(out + row * width + columns, normed.to(out.dtype.element_ty), mask=mask)
        if HAS_OTHER:
            normed = _normed(summed, other_gains, width, eps)
            tl.store(other_out + row * width + columns, normed.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _normed(x, gains, width, eps):
    return x * tl.rsqrt(tl.sum(x * x, axis=0) / width + eps) * gains


@triton.jit
def prepare_kernel(
    qkv, positions, q_gain, k_gain, factors, eps, q_width, k_width, width,
    BLOCK: tl.constexpr, HAS_NORM: tl.constexpr, HAS_FACTORS: tl.constexpr, IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Before rotation, in place: norms over all heads of queries and over all heads of keys, and queries times the
    factor of their position. One program a token's queries, one its keys."""
    token = tl.program_id(0).to(tl.int64)
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    place = qkv + token * width
    if tl.program_id(1) == 0:
        factor = 1.0
        if HAS_FACTORS:
            factor = tl.load(factors + tl.maximum(tl.load(positions + token), 0))
        _prepare(place, q_gain, factor, eps, q_width, BLOCK, HAS_NORM)
    else:
        _prepare(place + q_width, k_gain, 1.0, eps, k_width, BLOCK, HAS_NORM)


@triton.jit
def _prepare(place, gain, factor, eps, width, BLOCK: tl.constexpr, HAS_NORM: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    kind = place.dtype.element_ty
    values = tl.load(place + columns, mask=mask, other=0.0).to(tl.float32)
    if HAS_NORM:
        scale = tl.rsqrt(tl.sum(values * values, axis=0) / width + eps)
        values *= scale * tl.load(gain + columns, mask=mask, other=0.0)
    tl.store(place + columns, (values * factor).to(kind), mask=mask)


@triton.jit
def round_rows_kernel(x, out, scales, width, BLOCK: tl.constexpr):
    """out * scales = x, as near as fp8 (e4m3) comes. One row a program."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    values = tl.load(x + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-30) / E4M3_MAX  # a row of zeros stays one
    tl.store(out + row * width + columns, (values / scale).to(out.dtype.element_ty), mask=mask)
    tl.store(scales + row, scale)


@triton.jit
def activate_kernel(
    gate_up, times, out, width, stride,
    BLOCK: tl.constexpr, ACTIVATION: tl.constexpr, HAS_GATE: tl.constexpr, HAS_TIMES: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out = activation(first half) * second half, without a gate activation(all), a stretch of a row a program.
    HAS_TIMES: times as many numbers more, in rows that are `stride` apart."""
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    place = gate_up + row * (2 if HAS_GATE else 1) * width + columns
    gate = tl.load(place, mask=mask, other=0.0).to(tl.float32)
    up = 1.0
    if HAS_GATE:
        up = tl.load(place + width, mask=mask, other=0.0).to(tl.float32)
    if HAS_TIMES:
        up = tl.load(times + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row * width + columns, activated(gate, up, ACTIVATION).to(out.dtype.element_ty), mask=mask)


@triton.jit
def activated(gate, up, ACTIVATION: tl.constexpr):
    """gelu by its tanh is x / (1 + exp(-2u)) too, with u = sqrt(2 / pi) * (x + 0.044715 x^3)."""
    exponent = -gate
    if ACTIVATION == "gelu_tanh":
        exponent = gate * (gate * gate * -0.0713548162726 - 1.59576912160573)
    if ACTIVATION == "clamped":
        gate = tl.where(gate > 7.0, 7.0, gate)  # NaN stays NaN
        up = tl.where(up > 7.0, 7.0, tl.where(up < -7.0, -7.0, up)) + 1.0
        exponent = gate * -1.702
    return gate / (1.0 + tl.exp(exponent)) * up


@triton.jit
def gate_kernel(x, gates, width, stride, BLOCK: tl.constexpr, IS_ONE: tl.constexpr, IS_DEPENDENT: tl.constexpr):
    """x *= sigmoid(gates), a stretch of a row a program; IS_ONE: a gate for the whole row."""
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    gate = tl.load(gates + row * stride + columns * (1 - IS_ONE), mask=mask, other=0.0).to(tl.float32)
    gate = (1.0 / (1.0 + tl.exp(-gate))).to(x.dtype.element_ty).to(tl.float32)
    value = tl.load(x + row * width + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(x + row * width + columns, (value * gate).to(x.dtype.element_ty), mask=mask)


@triton.jit
def cap_kernel(x, width, cap, BLOCK: tl.constexpr):
    """x = cap * tanh(x / cap), a stretch of a row a program."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    places = x + row * width + columns
    tl.store(places, capped(tl.load(places, mask=columns < width, other=0.0), cap), mask=columns < width)


@triton.jit
def capped(x, cap):
    """cap * tanh(x / cap)"""
    return cap * (1.0 - 2.0 / (tl.exp(x * (2.0 / cap)) + 1.0))


@triton.jit
def rotate_store_kernel(
    qkv, out, rotation, positions, slots, keys, values, q_gain, k_gain, v_gain, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, Q_ROWS: tl.constexpr, KV_ROWS: tl.constexpr, DIM: tl.constexpr,
    SIZE: tl.constexpr, HAS_NORM: tl.constexpr, HAS_VALUE_NORM: tl.constexpr, HAS_VALUES: tl.constexpr,
    IS_DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One token a program: queries are rotated into `out`, keys rotated into the cache, values copied there. Without
    KV_HEADS there are queries alone; without HAS_VALUES keys are values too, before their norm.

    Q_ROWS and KV_ROWS are the numbers of heads rounded up to powers of two.
    """
    HALF: tl.constexpr = DIM // 2
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    low = tl.arange(0, HALF)
    place = rotation + tl.maximum(tl.load(positions + token), 0) * DIM
    cos = tl.load(place + low)[None, :]
    sin = tl.load(place + HALF + low)[None, :]
    launch_dependents(IS_DEPENDENT)
    wait_for_previous(IS_DEPENDENT)
    source = qkv + token * (HEADS + (1 + HAS_VALUES) * KV_HEADS) * DIM

    heads = tl.arange(0, Q_ROWS)
    is_head = (heads < HEADS)[:, None]
    spot = heads[:, None] * DIM + low[None, :]
    first = tl.load(source + spot, mask=is_head, other=0.0)
    second = tl.load(source + spot + HALF, mask=is_head, other=0.0)
    if HAS_NORM:
        first, second = normalise(first, second, q_gain, low, eps, DIM)
    first, second = rotate(first, second, cos, sin)
    target = out + token * HEADS * DIM + spot
    tl.store(target, first.to(out.dtype.element_ty), mask=is_head)
    tl.store(target + HALF, second.to(out.dtype.element_ty), mask=is_head)

    if slot < 0:  # padding writes nowhere
        return
    heads = tl.arange(0, KV_ROWS)
    is_head = (heads < KV_HEADS)[:, None]
    spot = heads[:, None] * DIM + low[None, :]
    memory = ((slot // SIZE).to(tl.int64) * KV_HEADS + heads)[:, None] * SIZE * DIM + (slot % SIZE) * DIM + low[None, :]
    source += HEADS * DIM
    first = tl.load(source + spot, mask=is_head, other=0.0)
    second = tl.load(source + spot + HALF, mask=is_head, other=0.0)
    if HAS_NORM:
        first, second = normalise(first, second, k_gain, low, eps, DIM)
    first, second = rotate(first, second, cos, sin)
    tl.store(keys + memory, kept(first, keys), mask=is_head)
    tl.store(keys + memory + HALF, kept(second, keys), mask=is_head)
    source += HAS_VALUES * KV_HEADS * DIM
    first = tl.load(source + spot, mask=is_head, other=0.0)
    second = tl.load(source + spot + HALF, mask=is_head, other=0.0)
    if HAS_VALUE_NORM:
        first, second = normalise(first, second, v_gain, low, eps, DIM)
    tl.store(values + memory, kept(first, values), mask=is_head)
    tl.store(values + memory + HALF, kept(second, values), mask=is_head)


@triton.jit
def store_kernel(
    k, v, slots, keys, values, k_row, k_head, v_row, v_head,
    KV_HEADS: tl.constexpr, KV_ROWS: tl.constexpr, DIM: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """One token a program: its keys and values are copied into the cache. k_row, k_head, ...: between neighbours."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    if slot < 0:  # padding writes nowhere
        return
    heads = tl.arange(0, KV_ROWS)[:, None]
    is_head = heads < KV_HEADS
    dims = tl.arange(0, DIM)[None, :]
    memory = ((slot // SIZE).to(tl.int64) * KV_HEADS + heads) * SIZE * DIM + (slot % SIZE) * DIM + dims
    key = tl.load(k + token * k_row + heads * k_head + dims, mask=is_head, other=0.0)
    tl.store(keys + memory, kept(key, keys), mask=is_head)
    value = tl.load(v + token * v_row + heads * v_head + dims, mask=is_head, other=0.0)
    tl.store(values + memory, kept(value, values), mask=is_head)


@triton.jit
def kept(x, memory):
    """x as the cache keeps it. In fp8 (e4m3) it is clipped to the largest number, as nothing is scaled."""
    if memory.dtype.element_ty == tl.float8e4nv:
        x = x.to(tl.float32)
        x = tl.where(x > E4M3_MAX, E4M3_MAX, tl.where(x < -E4M3_MAX, -E4M3_MAX, x))  # NaN stays NaN
    return x.to(memory.dtype.element_ty)


@triton.jit
def normalise(first, second, gain, low, eps, DIM: tl.constexpr):
    """Per head. As the reference does, the normalised value is rounded before it is rotated."""
    kind = first.dtype
    first = first.to(tl.float32)
    second = second.to(tl.float32)
    squares = tl.sum(first * first, axis=1) + tl.sum(second * second, axis=1)
    scale = tl.rsqrt(squares / DIM + eps)[:, None]
    first = first * scale * tl.load(gain + low)[None, :]
    second = second * scale * tl.load(gain + DIM // 2 + low)[None, :]
    return first.to(kind), second.to(kind)


@triton.jit
def rotate(first, second, cos, sin):
    first = first.to(tl.float32)
    second = second.to(tl.float32)
    return first * cos - second * sin, second * cos + first * sin
