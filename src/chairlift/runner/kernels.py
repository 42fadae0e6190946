"""Which operations a model runs on: torch's anywhere, native ones on a CPU, Triton's on a GPU."""

from importlib.util import find_spec

import torch

from chairlift.core.errors import InvalidConfig
from chairlift.core.limits import Limits
from chairlift.core.ports import Runner
from chairlift.runner import hardware
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.model import Decoder
from chairlift.runner.ops import Ops
from chairlift.runner.torch_ops import TorchOps
from chairlift.runner.torch_runner import TorchRunner

_TRITON_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def pick_kernels(name: str, device: torch.device, dtype: torch.dtype, head_dim: int = 64) -> str:
    """The named ones, or the fastest that can do this; named ones that cannot are refused."""
    if name == "torch":
        return name
    fast = "native" if device.type == "cpu" else "triton"
    why_not = _why_not_native(dtype, head_dim) if fast == "native" else _why_not_triton(dtype, head_dim)
    if name == "auto":
        return "torch" if why_not else fast
    if name != fast:
        why_not = f"they do not run on {device.type}"
    if why_not:
        what = f"{hardware.dtype_name(dtype)} on {device.type} with heads of {head_dim}"
        raise InvalidConfig(f"kernels {name}: {why_not} ({what}); use --kernels torch")
    return name


def _why_not_native(dtype: torch.dtype, head_dim: int) -> str:
    from chairlift.runner.native import ops as native

    if dtype not in native.DTYPES or head_dim > native.MAX_HEAD_DIM:
        return "they do not do this"
    return "" if native.available() else "they were not built or not for this processor"


def _why_not_triton(dtype: torch.dtype, head_dim: int) -> str:
    if dtype not in _TRITON_DTYPES or head_dim < 16 or head_dim & (head_dim - 1):
        return "they do not do this"
    if torch.cuda.get_device_capability() < (8, 0):
        return "this GPU is too old for them"
    return "" if find_spec("triton") else "triton is not installed"


def make_ops(kernels: str, threads: int) -> Ops:
    if kernels == "native":
        from chairlift.runner.native.ops import NativeOps

        return NativeOps(threads)
    if kernels == "triton":
        from chairlift.runner.cuda.ops import CudaOps

        return CudaOps()
    return TorchOps()


def make_runner(kernels: str, model: Decoder, kv: KvCache, device: torch.device, limits: Limits) -> Runner:
    if kernels == "triton":
        from chairlift.runner.cuda.runner import CudaRunner

        return CudaRunner(model, kv, device, limits)
    return TorchRunner(model, kv, device)
