"""The choice of kernels: torch's anywhere, native ones on a CPU, Triton's on a GPU."""

import os
import shutil
import sysconfig
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.ports import Runner
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.models.spec import ModelConfig
from chairlift.runner.adapters.model import AdaptedModel, HostSlots, adapted
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.attention.flashinfer import FlashKernels, why_not_flashinfer
from chairlift.runner.cuda.step.graph_key import MAX_GRAPHS
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.machine import hardware
from chairlift.runner.machine.instructions import why_not_native
from chairlift.runner.model import Decoder, PagedModel
from chairlift.runner.ops import Ops
from chairlift.runner.sampling.matchers import Matchers
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.torch.runner import TorchRunner
from chairlift.runner.weights.assemble import WeightFormat

_FAST = {"cpu": "native", "cuda": "triton"}  # by device; others have torch's operations alone
_COMPILERS = ("gcc", "clang")  # those that Triton looks for
_OLDEST = (8, 0)  # GPUs that our kernels run on
_LEAST_SIDE = 16
_TILES = (16, 32)
_TRITON_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def pick_kernels(
    name: str, device: torch.device, dtype: torch.dtype, config: ModelConfig | None = None, is_here: bool = True
) -> str:
    """The named kernels, or the fastest that can do this; named ones that cannot are refused. is_here: the device is in
    this machine, with what its kernels need beside it."""
    if name == "torch":
        return name
    head_dims = sorted({row.width for mixer in config.mixers for row in mixer.rows}) if config else [64]
    if device.type == "cuda" and is_here and (found := hardware.capability(device)) < _OLDEST:
        raise InvalidConfig(
            f"kernels {name}: this GPU has compute capability {found[0]}.{found[1]} and our kernels are for 8.0 "
            "(Ampere) or above; use --kernels torch or --device cpu"
        )
    fast = fastest(device)
    why_not = "" if all(_can_do(fast, dtype, head_dim) for head_dim in head_dims) else "do not do this"
    if fast == "triton" and config is not None and (lacking := _lacking(config)):
        why_not = f"have none for {lacking}"
    why_not = why_not or (why_missing(fast) if is_here else "")
    if name == "auto":
        return "torch" if why_not else fast
    if name != fast:
        why_not = f"do not run on {device.type}"
    if why_not:
        what = f"{hardware.dtype_name(dtype)} on {device.type} with heads of {', '.join(map(str, head_dims))}"
        raise InvalidConfig(f"kernels {name}: they {why_not} ({what}); use --kernels torch")
    return name


def _lacking(config: ModelConfig) -> str:
    """What Triton's kernels do not compute of a model; empty: nothing."""
    for mixer in config.mixers:
        if isinstance(mixer, DeltaNetSpec):
            if not all(_is_side(width) for width in (mixer.key_dim, mixer.value_dim)):
                return f"{mixer.name} with keys of {mixer.key_dim} numbers and values of {mixer.value_dim}"
        elif not isinstance(mixer, AttentionSpec):
            return mixer.name
    return ""


def _is_side(width: int) -> bool:
    """Of a matrix that Triton multiplies."""
    return width >= _LEAST_SIDE and not width & (width - 1)


def check_tiles(kernels: str, config: ModelConfig, block_size: int) -> None:
    """Refuses tiles of states that the kernels do not have."""
    if kernels == "triton" and any(mixer.fixed for mixer in config.mixers) and block_size not in _TILES:
        raise InvalidConfig(
            f"block_size {block_size}: layers with states have tiles of as many tokens, and their kernels take "
            f"{' or '.join(map(str, _TILES))}; use --block-size {_TILES[0]} or --kernels torch"
        )


def fastest(device: torch.device) -> str:
    """The kernels for such a device, usable or not."""
    return _FAST.get(device.type, "torch")


def why_missing(kernels: str) -> str:
    """Why kernels cannot be used here at all, in words that follow "they"; empty where they can."""
    if kernels == "native":
        return why_not_native()
    if kernels == "triton":
        return why_not_triton_compiles() if find_spec("triton") else "need triton, which is not installed"
    return ""


def why_not_triton_compiles() -> str:
    """What Triton needs beside itself: when it first meets a GPU it compiles a small library in C."""
    if "CC" not in os.environ and not any(map(shutil.which, _COMPILERS)):
        return "need a C compiler, and there is none; install gcc"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if not headers.exists():
        return f"need the headers of this Python, and there is no {headers}; install them (python3-dev, say)"
    return ""


def _can_do(kernels: str, dtype: torch.dtype, head_dim: int) -> bool:
    if kernels == "native":
        from chairlift.runner.native import ops as native

        return dtype in native.DTYPES and head_dim <= native.MAX_HEAD_DIM
    return kernels == "torch" or (dtype in _TRITON_DTYPES and _is_side(head_dim))


def pick_kv_dtype(name: str, kernels: str, dtype: torch.dtype) -> torch.dtype:
    """The number type of the KV cache."""
    if name == "auto":
        return dtype
    if why_not := why_not_only(kernels, "native") if name == "int8" else why_not_fp8(kernels):
        raise InvalidConfig(f"kv_dtype {name}: {why_not}; use --kv-dtype auto")
    return torch.int8 if name == "int8" else torch.float8_e4m3fn


def why_not_only(kernels: str, needed: str) -> str:
    """Why kernels cannot do what only others can; empty where they are those."""
    where = "a CPU" if needed == "native" else "a GPU"
    return "" if kernels == needed else f"only the {needed} kernels do it, on {where}, and the {kernels} ones are used"


def why_not_fp8(kernels: str) -> str:
    if why_not := why_not_only(kernels, "triton"):
        return why_not
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) < (8, 9):
        return f"it takes a GPU of compute capability 8.9 (Ada, Hopper) or above, and this one has {major}.{minor}"
    return ""


def pick_attention(
    name: str, kernels: str, device: torch.device, dtype: torch.dtype, kv_dtype: torch.dtype, config: ModelConfig,
    block_size: int,
) -> FlashKernels | None:  # fmt: skip
    """FlashInfer's kernels, compiled; None: the kernels compute attention themselves."""
    if name == "auto":
        return None
    if kernels == "triton":
        why_not = "" if name == "triton" else why_not_flashinfer(dtype, kv_dtype, config)
    else:
        why_not = f"it is for the triton kernels, on a GPU, and the {kernels} ones are used; use --attention auto"
    if why_not:
        raise InvalidConfig(f"attention {name}: {why_not}")
    if name == "triton":
        return None
    flash = FlashKernels(config.layers[0].attention, block_size, dtype, device)
    flash.compile()
    return flash


def compile_ahead(
    kernels: str, ops: Ops, device: torch.device, dtype: torch.dtype, kv_dtype: torch.dtype,
    weight_format: WeightFormat, config: ModelConfig, limits: Limits, exact: bool = False,
    adapters: AdapterStore[Any] | None = None,
) -> Callable[[], None]:  # fmt: skip
    """Begins to compile the kernels of a start in other processes; the returned function waits for them."""
    if kernels != "triton" or config.fallback is not None:
        return lambda: None
    from chairlift.runner.cuda.start.compile_ahead import CompileAhead

    max_rank = 0 if adapters is None else adapters.max_rank
    make, capability = partial(make_runner, kernels, exact=exact, adapters=adapters), hardware.capability(device)
    return CompileAhead(make, config, ops, dtype, kv_dtype, weight_format, limits, capability, max_rank).wait


def check_exact(kernels: str, device: torch.device) -> None:
    """Refuses `exact` where the kernels are not."""
    if kernels == "mindspore":
        raise InvalidConfig("exact: MindSpore's products add up by the number of rows; use --device cpu")
    if kernels == "torch" and device.type != "cpu":
        ways_out = "--kernels triton or --device cpu" if device.type == "cuda" else "--device cpu"
        raise InvalidConfig(
            f"exact: torch's operations on a GPU add up by what shares the step; use {ways_out}, or leave --exact out"
        )


def make_ops(kernels: str, threads: int, exact: bool = False) -> Ops:
    """exact: a row's bits do not depend on the other rows."""
    if kernels == "native":
        from chairlift.runner.native.ops import NativeOps

        return NativeOps(threads)
    if kernels == "triton":
        from chairlift.runner.cuda.ops import CudaOps

        return CudaOps(exact, fp8=torch.cuda.is_available() and not why_not_fp8(kernels))
    return TorchOps(exact)


def make_runner(
    kernels: str, model: PagedModel, kv: KvCache, device: torch.device, limits: Limits,
    flash: FlashKernels | None = None, exact: bool = False, matchers: Matchers | None = None,
    max_graphs: int = MAX_GRAPHS, adapters: AdapterStore[Any] | None = None,
) -> Runner:  # fmt: skip
    """max_graphs: captured steps that are kept, where steps are captured. adapters: those of the host."""
    if kernels == "triton":
        from chairlift.runner.cuda.runner import CudaRunner

        return CudaRunner(model, kv, device, limits, flash, exact, matchers, max_graphs, adapters=adapters)
    if kernels == "native":
        from chairlift.runner.native.adapters import NativeSlots
        from chairlift.runner.native.ops import NativeOps
        from chairlift.runner.native.tape import taped_decoder

        assert isinstance(model.ops, NativeOps)
        if isinstance(model, Decoder):
            calls = model.ops.calls
            taped = partial(taped_decoder, calls=calls)
            if adapters is None:
                return TorchRunner(taped(model), kv, device, matchers)
            own = NativeSlots(adapters, limits.num_adapter_slots, model.config, limits.max_step_tokens, calls)
            return TorchRunner(AdaptedModel(taped(model), taped(adapted(model, own)), own), kv, device, matchers, own)
    if adapters is None:
        return TorchRunner(model, kv, device, matchers)
    assert isinstance(model, Decoder)
    slots = HostSlots(adapters, limits.num_adapter_slots)
    return TorchRunner(AdaptedModel(model, adapted(model, slots), slots), kv, device, matchers, slots)
