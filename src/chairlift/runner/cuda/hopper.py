"""The kernels for Hopper, where they can be used: they take one kind of GPU, and a language that differs between
versions of Triton. So they are tried when a runner is made, on random numbers; where they fail, the plain kernels
compute everything.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from triton import knobs

from chairlift.models.mixers.attention import AttentionSpec
from chairlift.runner.cuda.target import arch
from chairlift.runner.weights.mxfp4 import in_halves, widened

if TYPE_CHECKING:
    from chairlift.runner.cuda.attention.hopper_prefill import HopperPrompts
    from chairlift.runner.cuda.experts.hopper import HopperExperts
    from chairlift.runner.cuda.products.hopper import FewRows
    from chairlift.runner.cuda.products.hopper_int4 import FewRowsInt4

_HOPPER = 90
_PROCESSORS = 132  # of a GPU that is not there
_ROWS, _WIDTH, _OUTPUTS = 5, 1024, 320  # of the product that is tried
_NARROW = 320  # columns of the experts
_BLOCK_SIZE, _NUM_BLOCKS = 16, 8
_TOLERANCE = 1e-2
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Hopper:
    """None: the plain kernels are used."""

    few_rows: "FewRows | None" = None
    prompts: "HopperPrompts | None" = None
    experts: "HopperExperts | None" = None
    int4: "FewRowsInt4 | None" = None

    def begin(self, device: torch.device, has_mxfp4: bool = False, has_int4: bool = False) -> None:
        """has_mxfp4: there are experts of such weights. has_int4: matrices of these."""
        if knobs.runtime.interpret or arch() != _HOPPER:
            return
        with _tried("the kernels for Hopper are"):
            few_rows, prompts = _made(device)
            _check(device, _product_error(few_rows, device), _attention_error(prompts, device))
            self.few_rows, self.prompts = few_rows, prompts
        if has_mxfp4:
            with _tried("the kernel for experts in MXFP4 on Hopper is"):
                from chairlift.runner.cuda.experts.hopper import HopperExperts

                experts = HopperExperts()
                _check(device, *_experts_errors(experts, device))
                self.experts = experts
        if has_int4:
            with _tried("the kernel for weights of 4 bits on Hopper is"):
                from chairlift.runner.cuda.products.hopper_int4 import FewRowsInt4

                few_rows_int4 = FewRowsInt4(device, _num_processors(device))
                _check(device, *(_int4_error(few_rows_int4, device, kind) for kind in (torch.bfloat16, torch.float16)))
                self.int4 = few_rows_int4


@contextmanager
def _tried(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # another version may refuse them in any way, and no start fails for it
        _log.warning("%s not used: %s", what, _last_line(error))


def _check(device: torch.device, *errors: float) -> None:
    """Without a GPU nothing is computed: kernels are noted to be compiled."""
    if device.type == "cuda" and not max(errors) < _TOLERANCE:
        raise RuntimeError(f"{max(errors):.2g} off")


def _made(device: torch.device) -> "tuple[FewRows, HopperPrompts]":
    from chairlift.runner.cuda.attention.hopper_prefill import HopperPrompts
    from chairlift.runner.cuda.products.hopper import FewRows

    return FewRows(device, _num_processors(device)), HopperPrompts()


def _num_processors(device: torch.device) -> int:
    is_there = device.type == "cuda"
    return torch.cuda.get_device_properties(device).multi_processor_count if is_there else _PROCESSORS


def _last_line(error: BaseException) -> str:
    """Of the first cause: the compiler's own words show where it is, not what."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [repr(error)])[-1]


def _product_error(few_rows: "FewRows", device: torch.device) -> float:
    source = torch.Generator(device).manual_seed(0)
    x, matrix = (torch.randn(count, _WIDTH, generator=source, device=device).bfloat16() for count in (_ROWS, _OUTPUTS))
    return _error(few_rows.multiply(x, matrix, None, torch.float32), x.float() @ matrix.float().t())


def _attention_error(prompts: "HopperPrompts", device: torch.device) -> float:
    """Of one chunk at the end of a context, by two heads that share their keys."""
    source = torch.Generator(device).manual_seed(1)
    spec = AttentionSpec(num_heads=2, num_kv_heads=1, head_dim=128, scale=128**-0.5, rotation=None)
    count, context = 70, _BLOCK_SIZE * _NUM_BLOCKS - 3
    shape = _NUM_BLOCKS, 1, _BLOCK_SIZE, spec.head_dim
    keys, values = (torch.randn(shape, generator=source, device=device).bfloat16() for _ in range(2))
    q = torch.randn(count, 2, spec.head_dim, generator=source, device=device).bfloat16()
    tables = torch.arange(_NUM_BLOCKS, dtype=torch.int32, device=device)[None].contiguous()
    first = context - count
    tiles = torch.tensor([(0, 64, first, 0), (64, count - 64, first + 64, 0)], dtype=torch.int32, device=device)
    out = torch.empty(count, 2 * spec.head_dim, dtype=q.dtype, device=device)
    prompts.attend(q, spec, keys, values, tables, tiles, out)
    k, v = (cache.view(-1, spec.head_dim)[:context].float() for cache in (keys, values))
    scores = torch.einsum("thd,kd->thk", q.float(), k) * spec.scale
    places = torch.arange(context, device=device)
    is_hidden = places[None, :] > first + torch.arange(count, device=device)[:, None]
    shares = scores.masked_fill(is_hidden[:, None, :], float("-inf")).softmax(2)
    return _error(out.view(count, 2, -1), torch.einsum("thk,kd->thd", shares, v))


def _experts_errors(experts: "HopperExperts", device: torch.device) -> list[float]:
    """Of the second of two experts, with a gate and without, where columns end within a stretch."""
    from chairlift.runner.cuda.experts.experts import Order
    from chairlift.runner.cuda.experts.matrices import CudaExperts

    source = torch.Generator(device).manual_seed(2)
    x = torch.randn(_ROWS, _NARROW, generator=source, device=device).bfloat16()
    shape = 2, _OUTPUTS, _NARROW // 32
    blocks = torch.randint(256, (*shape, 16), generator=source, device=device, dtype=torch.uint8)
    scales = torch.randint(118, 124, shape, generator=source, device=device, dtype=torch.uint8)
    bias = torch.randn(2, _OUTPUTS, generator=source, device=device).bfloat16()
    pairs = torch.arange(_ROWS, dtype=torch.int32, device=device)
    tiles = torch.tensor([(1, 0, _ROWS)], dtype=torch.int32, device=device)
    order = Order(pairs, tiles, torch.ones(1, dtype=torch.int32, device=device))
    product = x.float() @ widened(blocks[1], scales[1]).t() + bias[1].float()
    gate, up = product.chunk(2, 1)
    weight = CudaExperts(in_halves(blocks), bias, scales)
    return [
        _error(experts.multiply(x, weight, order, 16, 1, ""), product),
        _error(experts.multiply(x, weight, order, 8, 1, "silu"), torch.nn.functional.silu(gate) * up),
    ]


def _int4_error(few_rows: "FewRowsInt4", device: torch.device, kind: torch.dtype) -> float:
    """Of groups of 128 columns with zeros, in parts that are joined."""
    from chairlift.runner.cuda.products.int4 import int4
    from chairlift.runner.cuda.products.packed import Packed

    source = torch.Generator(device).manual_seed(3)
    shape = _OUTPUTS, _WIDTH // 128
    codes = torch.randint(256, (_OUTPUTS, _WIDTH // 2), generator=source, device=device, dtype=torch.uint8)
    zeros = torch.randint(16, shape, generator=source, device=device, dtype=torch.int8)
    scales = (torch.rand(shape, generator=source, device=device) + 0.5).half()
    packed = Packed(codes, scales, zeros, None, torch.arange(16.0, device=device), None, _WIDTH)
    matrix = int4(packed)
    assert matrix is not None
    x = torch.randn(_ROWS, _WIDTH, generator=source, device=device).to(kind)
    wide = torch.empty(_OUTPUTS, _WIDTH, dtype=torch.float32, device=device)
    packed.widen(wide)
    return _error(few_rows.multiply(x, matrix, None, torch.float32), x.float() @ wide.t())


def _error(got: Tensor, want: Tensor) -> float:
    return float((got.float() - want).norm() / want.norm())
