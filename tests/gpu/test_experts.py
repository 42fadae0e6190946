"""Mixtures of experts and attention sinks on a real GPU: against torch, alone and among others, in graphs."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from chairlift.models.spec import ExpertsSpec, FeedForwardSpec
from chairlift.runner.cuda.attention.tiling import choose_tiling
from chairlift.runner.cuda.experts.experts import by_expert, by_row, choose, tile_of
from chairlift.runner.cuda.hopper import Hopper
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.ops import Experts
from chairlift.runner.torch.experts import combine, route
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.mxfp4 import MXFP4, in_halves, widened
from chairlift.runner.weights.source import Stored
from fakes.steps import Case
from gpu.test_one_row import on_gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
QWEN = FeedForwardSpec(width=768, experts=ExpertsSpec(count=128, num_chosen=8, is_normalised=True))
GPT_OSS = FeedForwardSpec(
    width=2880, activation="clamped",
    experts=ExpertsSpec(count=32, num_chosen=4, scores="chosen", has_bias=True),
)  # fmt: skip
HIDDEN = {QWEN: 2048, GPT_OSS: 2880}


def numbers(*shape: int, seed: int = 0, scale: float = 0.05) -> Tensor:
    source = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(shape, generator=source, device="cuda") * scale).bfloat16()


def four_bits(*shape: int, seed: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator("cuda").manual_seed(seed)
    *lead, width = shape
    groups = (*lead, width // 32)
    blocks = torch.randint(0, 256, (*groups, 16), generator=source, device="cuda", dtype=torch.uint8)
    return blocks, torch.randint(118, 122, groups, generator=source, device="cuda", dtype=torch.uint8)


class Mixture:
    """Its operations, and the same numbers in float32."""

    def __init__(self, spec: FeedForwardSpec, exact: bool = False, is_mxfp4: bool = False) -> None:
        rule, hidden = spec.experts, HIDDEN[spec]
        assert rule is not None
        shapes = ((rule.count, 2 * spec.width, hidden), (rule.count, hidden, spec.width))
        biases = [numbers(*shape[:2], seed=3) if rule.has_bias else None for shape in shapes]
        self.ops, self.spec, self.rule = CudaOps(exact), spec, rule
        if is_mxfp4:
            stored = [four_bits(*shape, seed=seed) for seed, shape in enumerate(shapes)]
            self.wide = [widened(*each) for each in stored]
            made = [
                self.ops.mxfp4_experts([Stored("", MXFP4, (in_halves(blocks), scales), (), 32)], bias, torch.bfloat16)
                for (blocks, scales), bias in zip(stored, biases, strict=True)
            ]
        else:
            plain = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
            self.wide = [matrix.float() for matrix in plain]
            made = [self.ops.expert_weight(matrix, bias) for matrix, bias in zip(plain, biases, strict=True)]
        self.biases = [torch.zeros(shape[:2], device="cuda") if bias is None else bias.float()
                       for bias, shape in zip(biases, shapes, strict=True)]  # fmt: skip
        self.router = numbers(rule.count, hidden, seed=5)
        self.experts = Experts(spec, self.ops.weight(self.router), None, made[0], made[1])

    def wanted(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """In float32, expert by expert."""
        parts = torch.zeros(*ids.shape, x.shape[1], device="cuda")
        for expert in ids.unique().tolist():
            rows, choices = (ids == expert).nonzero(as_tuple=True)
            product = x[rows].float() @ self.wide[0][expert].T + self.biases[0][expert]
            active = TorchOps().activate(product, self.spec.activation)
            parts[rows, choices] = active @ self.wide[1][expert].T + self.biases[1][expert]
        return combine(parts, weights, None)


def error(got: Tensor, want: Tensor) -> float:
    return float((got.float() - want).norm() / want.norm())


CASES = [(QWEN, False), (QWEN, True), (GPT_OSS, False), (GPT_OSS, True)]


@pytest.mark.parametrize(("spec", "is_mxfp4"), CASES)
@pytest.mark.parametrize("num_rows", [1, 3, 16, 100, 1000])
def test_both_ways_give_what_torch_gives(spec: FeedForwardSpec, is_mxfp4: bool, num_rows: int) -> None:
    own = Mixture(spec, is_mxfp4=is_mxfp4)
    x = numbers(num_rows, HIDDEN[spec], seed=7, scale=1.0)
    logits = own.experts.router.logits(x)
    ids, weights = choose(logits, own.rule, None)
    wanted_ids, wanted_weights = route(logits, own.rule, None)
    assert torch.equal(ids.long(), wanted_ids)
    torch.testing.assert_close(weights, wanted_weights, atol=1e-5, rtol=1e-4)
    want = own.wanted(x, wanted_ids, wanted_weights)
    tile = tile_of(num_rows, own.rule, x.dtype)
    assert error(by_expert(x, own.experts, ids, weights, None, tile), want) < 1e-2
    if num_rows <= 16:
        assert error(by_row(x, own.experts, ids, weights, None), want) < 1e-2


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0), reason="this GPU is not Hopper"
)
@pytest.mark.parametrize("num_rows", [1, 5, 16, 64, 200, 300])
def test_the_kernel_for_hopper_gives_what_torch_gives(num_rows: int) -> None:
    own, hopper = Mixture(GPT_OSS, is_mxfp4=True), Hopper()
    hopper.begin(torch.device("cuda"), has_mxfp4=True)
    assert hopper.experts is not None
    x = numbers(num_rows, HIDDEN[GPT_OSS], seed=7, scale=1.0)
    ids, weights = choose(own.experts.router.logits(x), own.rule, None)
    want = own.wanted(x, ids.long(), weights)
    for rows in (8, 16):
        got = by_expert(x, own.experts, ids, weights, None, hopper.experts.tile(rows))
        assert error(got, want) < 1e-2
        alone = by_expert(x[:1], own.experts, ids[:1], weights[:1], None, hopper.experts.tile(rows))
        assert torch.equal(alone, got[:1])


@pytest.mark.parametrize(("spec", "is_mxfp4"), CASES)
def test_the_bits_of_a_row_do_not_depend_on_rows_that_share_its_experts(spec: FeedForwardSpec, is_mxfp4: bool) -> None:
    own = Mixture(spec, exact=True, is_mxfp4=is_mxfp4)
    x = numbers(700, HIDDEN[spec], seed=9, scale=1.0)
    among = own.ops.experts(x, own.experts, None)
    for low, high in ((0, 1), (3, 5), (100, 117), (0, 64), (200, 456)):
        assert torch.equal(own.ops.experts(x[low:high], own.experts, None), among[low:high])
    shuffled = torch.randperm(len(x), device="cuda")
    assert torch.equal(own.ops.experts(x[shuffled], own.experts, None), among[shuffled])


@pytest.mark.parametrize("num_rows", [1, 64])
def test_a_captured_step_computes_other_rows(num_rows: int) -> None:
    own = Mixture(QWEN)
    x = numbers(num_rows, HIDDEN[QWEN], seed=1, scale=1.0)
    own.ops.experts(x, own.experts, None)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = own.ops.experts(x, own.experts, None)
    for seed in (2, 3):
        x.copy_(numbers(num_rows, HIDDEN[QWEN], seed=seed, scale=1.0))
        graph.replay()
        assert torch.equal(out, own.ops.experts(x, own.experts, None))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "tiled"), [(8, 8, False), (64, 8, False), (64, 8, True)])
def test_sinks_take_their_share_once(heads: int, kv_heads: int, tiled: bool, exact: bool) -> None:
    case = Case([(700, 1), (3, 1), (40, 70 if tiled else 2)], heads, kv_heads, dim=64, size=16, tiled=tiled)
    attention = case.attention(window=128, has_sinks=True)
    *_, want = case.run(TorchOps(), attention)
    assert attention.sinks is not None
    attention = replace(attention, rotation=case.rotation.cuda(), sinks=attention.sinks.cuda())
    case.cuda = on_gpu(case.cuda)
    if exact:
        case.cuda = replace(case.cuda, tiling=choose_tiling(len(case.qkv), 701, heads != kv_heads, exact=True))
    for name in ("qkv", "keys", "values"):
        setattr(case, name, getattr(case, name).bfloat16().cuda())
    *_, got = case.run(CudaOps(exact), attention)
    torch.testing.assert_close(got.float().cpu(), want, atol=3e-2, rtol=3e-2)
