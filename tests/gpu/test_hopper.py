"""The kernels for Hopper on a real GPU: there is no interpreter for them."""

import random

import pytest
import torch
from torch import Tensor

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.cuda.hopper import Hopper
from chairlift.runner.cuda.products.exact import find

DEVICE = torch.device("cuda")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no Hopper GPU"
    ),
]


@pytest.fixture(scope="module")
def hopper() -> Hopper:
    kernels = Hopper()
    kernels.begin(DEVICE)
    assert kernels.few_rows is not None and kernels.prompts is not None
    return kernels


def error(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.parametrize("seed", range(24))
def test_prompts_are_attended(hopper: Hopper, seed: int) -> None:
    """Chunks of several requests in one launch; what lies in the cache beside their keys is not a number."""
    draw, source = random.Random(seed), torch.Generator(DEVICE).manual_seed(seed)
    kv_heads, group = draw.choice([1, 2, 4]), draw.choice([2, 3, 4, 7, 8])
    spec = AttentionSpec(
        num_heads=kv_heads * group, num_kv_heads=kv_heads, head_dim=draw.choice([64, 128]), scale=0.1, rotation=None,
        window=draw.choice([0, 0, 1, 50, 300]),
    )  # fmt: skip
    size, dtype = draw.choice([8, 16, 32, 64]), draw.choice([torch.bfloat16, torch.float16])
    spans = [(draw.choice([0, 1, 63, 200, 1500]), draw.choice([1, 15, 64, 65, 300])) for _ in range(draw.randint(1, 3))]
    width = max(-(-(start + count) // size) for start, count in spans) + 1
    places = torch.randperm(width * len(spans), generator=source, device=DEVICE)
    tables = places.view(len(spans), width).int()
    shape = (width * len(spans), kv_heads, size, spec.head_dim)
    keys, values = (torch.full(shape, float("nan"), dtype=dtype, device=DEVICE) for _ in range(2))
    q = torch.randn(
        sum(count for _, count in spans), spec.num_heads, spec.head_dim, generator=source, device=DEVICE
    ).to(dtype)
    tiles, wants, low = [], [], 0
    for row, (start, count) in enumerate(spans):
        end = start + count
        k, v = (torch.randn(end, kv_heads, spec.head_dim, generator=source, device=DEVICE).to(dtype) for _ in range(2))
        for place in range(end):
            block = tables[row, place // size]
            keys[block, :, place % size], values[block, :, place % size] = k[place], v[place]
        tiles += [(low + i, min(64, count - i), start + i, row) for i in range(0, count, 64)]
        wants.append(attended(q[low : low + count], k, v, start, spec))
        low += count
    tiles += [(0, 0, 0, 0)] * 3
    out = torch.full((len(q), spec.num_heads * spec.head_dim), float("nan"), dtype=dtype, device=DEVICE)
    assert hopper.prompts is not None and hopper.prompts.takes(q, spec, keys)
    numbers = torch.tensor(tiles, dtype=torch.int32, device=DEVICE)
    hopper.prompts.attend(q, spec, keys, values, tables, numbers, out)
    assert error(out, torch.cat(wants)) < 5e-3


def attended(q: Tensor, k: Tensor, v: Tensor, start: int, spec: AttentionSpec) -> Tensor:
    group = spec.num_heads // spec.num_kv_heads
    k, v = (each.double().repeat_interleave(group, 1) for each in (k, v))
    own, places = start + torch.arange(len(q), device=DEVICE)[:, None], torch.arange(len(k), device=DEVICE)[None, :]
    is_seen = places <= own
    if spec.window:
        is_seen &= places > own - spec.window
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * spec.scale
    shares = scores.masked_fill(~is_seen, float("-inf")).softmax(2)
    return torch.einsum("hqk,khd->qhd", shares, v).flatten(1)


@pytest.mark.parametrize("num_rows", [1, 3, 8, 9, 16, 17, 32, 33, 64])
@pytest.mark.parametrize(("outputs", "width"), [(64, 128), (4096, 4096), (1000, 640), (320, 14336)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_few_rows(hopper: Hopper, num_rows: int, outputs: int, width: int, dtype: torch.dtype) -> None:
    source = torch.Generator(DEVICE).manual_seed(num_rows)
    x, matrix, bias = (
        torch.randn(shape, generator=source, device=DEVICE).to(dtype)
        for shape in ((num_rows, width), (outputs, width), (outputs,))
    )
    assert hopper.few_rows is not None and hopper.few_rows.takes(x, matrix)
    want = x.double() @ matrix.double().t()
    assert error(hopper.few_rows.multiply(x, matrix, bias, torch.float32), want + bias.double()) < 1e-5
    got = hopper.few_rows.multiply(x, matrix, None, torch.float32)
    assert error(got, want) < 1e-5
    for row in range(num_rows):
        two = torch.stack([x[row], x[row - 1]])
        assert torch.equal(hopper.few_rows.multiply(two, matrix, None, torch.float32)[0], got[row])


@pytest.mark.parametrize("num_rows", [1, 8, 16])
@pytest.mark.parametrize(("outputs", "width"), [(6144, 4096), (4096, 14336), (1000, 640)])
def test_uncut_products_have_the_bits_of_the_exact_one(hopper: Hopper, num_rows: int, outputs: int, width: int) -> None:
    source = torch.Generator(DEVICE).manual_seed(num_rows)
    x, matrix = (torch.randn(n, width, generator=source, device=DEVICE).bfloat16() for n in (num_rows, outputs))
    assert hopper.few_rows is not None
    ours = hopper.few_rows.multiply(x, matrix, None, torch.float32, is_cut=False)
    assert torch.equal(ours, find(matrix, torch.float32, num_rows, Hopper())(x, matrix, torch.float32))


@pytest.mark.parametrize("num_rows", [5, 20, 60])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gates_of_few_rows(hopper: Hopper, activation: str, num_rows: int) -> None:
    source = torch.Generator(DEVICE).manual_seed(0)
    x, matrix = (torch.randn(n, 512, generator=source, device=DEVICE).bfloat16() / 8 for n in (num_rows, 2 * 1000))
    gate, up = (x.double() @ matrix.double().t()).bfloat16().double().chunk(2, 1)
    gated = (
        torch.nn.functional.silu(gate) if activation == "silu" else torch.nn.functional.gelu(gate, approximate="tanh")
    )
    assert hopper.few_rows is not None
    assert error(hopper.few_rows.multiply(x, matrix, None, torch.bfloat16, activation), gated * up) < 1e-2
