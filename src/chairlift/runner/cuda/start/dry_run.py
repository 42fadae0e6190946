"""Which kernels a start will launch, found out by a dry run without a GPU: nothing has to be listed by hand.

The steps that are run before serving, those that are captured ahead and some of long contexts are laid out and launched
in memory that is hardly written and so takes little. Triton's hook before compiling a kernel notes it and refuses, and
most of what torch would compute is left out. There is one layer of each kind, as layers declared alike launch the same;
with adapters also the last one, after whose attention fewer rows go on.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.return_types import topk
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from chairlift.core.limits import Limits
from chairlift.core.ports import Runner
from chairlift.models.kv_groups import kv_groups
from chairlift.models.shards import Cut
from chairlift.models.spec import ModelConfig
from chairlift.models.tensors import MXFP4_GROUP
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.cuda.start.compiler import DriverStub
from chairlift.runner.cuda.step.device import DevicePart
from chairlift.runner.kv_cache import KvCache, sizes_of
from chairlift.runner.memory import measure
from chairlift.runner.model import PagedModel
from chairlift.runner.ops import Ops
from chairlift.runner.start import warm_up
from chairlift.runner.weights.assemble import Assembly, WeightFormat
from chairlift.runner.weights.mxfp4 import MXFP4
from chairlift.runner.weights.source import Stored
from chairlift.runner.weights.transfer import Transfer

MakeRunner = Callable[[PagedModel, KvCache, torch.device, Limits], Runner]

_CPU = torch.device("cpu")
_LARGE = 1 << 20  # numbers
_OF_EXPERTS = 3  # dimensions
_NO_GPU = -1  # Triton does not look at what this process has compiled for a real GPU


@torch.inference_mode()
def kernels_of_start(
    make_runner: MakeRunner, config: ModelConfig, ops: Ops, dtype: torch.dtype, kv_dtype: torch.dtype,
    weight_format: WeightFormat, limits: Limits, target: GPUTarget,
) -> list[str]:  # fmt: skip
    """Each as Triton's own words for a launch, in the order of first launches."""
    last = config.layers[-1:] if limits.num_adapter_slots else ()
    config = replace(config, layers=(*config.kinds_of_layers, *last))
    ops = deepcopy(ops)  # they keep what they learn about a device
    groups = kv_groups(config, bool(limits.groups), sizes_of(limits.block_size, dtype, kv_dtype))
    num_blocks = -(-limits.max_model_len // limits.block_size)
    limits = replace(
        limits, num_blocks=num_blocks, groups=groups.beside(limits.max_model_len),
        num_adapter_slots=min(1, limits.num_adapter_slots),  # each takes memory
    )  # fmt: skip
    with _noting(target) as noted, _ShapesOnly():
        empty = _EmptyWeights(dtype, config.four_bits is not None)
        weights = Assembly(config, ops, empty, dtype, _CPU, weight_format, _NoTransfer(None))
        kv = KvCache(config, num_blocks, limits.block_size, kv_dtype, _CPU, groups=groups)
        runner = make_runner(weights.build(limits.max_model_len), kv, _CPU, limits)
        assert isinstance(runner, CudaRunner)
        for plan in (*measure.steps(limits), *warm_up.steps(limits, can_wait=True)):
            runner.dry_run(plan)
        assert isinstance(runner.device, DevicePart)
        runner.device.dry_run_likely()
    return list(noted)


class _EmptyWeights:
    """Weights that hold nothing."""

    def __init__(self, dtype: torch.dtype, has_four_bits: bool = False) -> None:
        self._dtype, self._has_four_bits = dtype, has_four_bits

    @property
    def names(self) -> Collection[str]:
        return ()

    def file_of(self, name: str) -> str:
        return name

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.empty(shape, dtype=self._dtype)

    def stored(self, name: str, shape: tuple[int, ...], cut: Cut | None = None) -> Stored | None:
        if not self._has_four_bits or len(shape) < _OF_EXPERTS:
            return None
        byte = torch.zeros((), dtype=torch.uint8)  # scales are looked at
        groups = (*shape[:-1], shape[-1] // MXFP4_GROUP)
        tensors = byte.expand(*groups, MXFP4_GROUP // 2), byte.expand(groups)
        return Stored(name, MXFP4, tensors, shape, MXFP4_GROUP)


class _NoTransfer(Transfer):
    def copy(self, source: Tensor, target: Tensor) -> None:
        """Touches neither."""

    def copy_changed(self, source: Tensor, target: Tensor, change: Callable[[Tensor], Tensor]) -> None:
        """Nor does this."""


class _ShapesOnly(TorchFunctionMode):
    """Operations that take long, or take numbers that were not computed, give something of the right shape."""

    _SHAPES: Mapping[Any, Callable[..., Tensor]] = {
        torch.nn.functional.linear: lambda x, matrix, bias=None: x.new_empty(len(x), len(matrix)),
        torch.nn.functional.embedding: lambda ids, matrix, **_: matrix.new_empty(len(ids), matrix.shape[1]),
        torch._scaled_mm: lambda x, y, *_, out_dtype, **__: x.new_empty(len(x), y.shape[1], dtype=out_dtype),
        Tensor.gather: lambda x, dim, places: x.new_empty(places.shape),
    }
    # Of logits.
    _LARGE_SHAPES: Mapping[Any, Callable[..., Tensor | topk]] = {
        Tensor.float: lambda x: x.new_empty(x.shape, dtype=torch.float32),
        Tensor.index_select: lambda x, dim, places: x.new_empty(len(places), *x.shape[1:]),
        Tensor.log_softmax: lambda x, *_, **__: torch.empty_like(x),
        Tensor.topk: lambda x, count, **_: topk(
            (x.new_empty(*x.shape[:-1], count), x.new_zeros(*x.shape[:-1], count, dtype=torch.int64))
        ),
    }

    def __torch_function__(
        self, function: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function in self._LARGE_SHAPES and args[0].numel() > _LARGE:
            return self._LARGE_SHAPES[function](*args, **(kwargs or {}))
        return self._SHAPES.get(function, function)(*args, **(kwargs or {}))


@contextmanager
def _noting(target: GPUTarget) -> Iterator[dict[str, None]]:
    noted: dict[str, None] = {}
    before = knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = lambda **asked: _note(noted, asked["compile"])
    driver.set_active(DriverStub(target, _NO_GPU))
    try:
        yield noted
    finally:
        knobs.runtime.jit_cache_hook = before
        driver.set_active(None)  # the GPU's own is made on first use


def _note(noted: dict[str, None], asked: dict[str, Any]) -> bool:
    """True: nothing is compiled or launched."""
    noted[asked["specialization_data"]] = None
    return True
