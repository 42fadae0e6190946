"""FlashInfer's kernels: whether they fit a model's attention, and compiling them.

FlashInfer compiles a kernel for each kind of attention on first use, with nvcc, and keeps it on disk: ten seconds or
more, once.
"""

import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch

from chairlift.core.errors import InvalidConfig
from chairlift.models.mixers.attention import AttentionSpec
from chairlift.models.spec import ModelConfig
from chairlift.runner.machine import hardware

_DTYPES = (torch.bfloat16, torch.float16)
_HEAD_DIMS = (64, 128, 256)
_MIN_GROUP = 4  # query heads of a kv head, from which tensor cores decode faster
_COMPILER_BYTES = 4 * 2**30  # that one compiler may need
_OTHERWISE = "use --attention triton"


def why_not_flashinfer(dtype: torch.dtype, kv_dtype: torch.dtype, config: ModelConfig) -> str:
    """Why FlashInfer cannot be used and what to do instead; empty if it can."""
    # What comes before attention and after it is not FlashInfer's.
    kinds = {
        replace(
            spec, rotation=None, growth=None, has_qk_norm=False, has_wide_qk_norm=False, has_bias=False,
            has_output_bias=False,
        )
        for spec in config.attentions
    }  # fmt: skip
    if not all(isinstance(mixer, AttentionSpec) for mixer in config.mixers):
        return f"it is used where all layers attend; {_OTHERWISE}"
    spec = config.attentions[0]
    if len(kinds) > 1 or spec.cap or spec.has_sinks or spec.scale != spec.head_dim**-0.5:
        plain = "the same in all layers, uncapped, plainly scaled and without sinks"
        return f"it is used where attention is {plain}; {_OTHERWISE}"
    if dtype not in _DTYPES or kv_dtype is not dtype:
        return f"it is used in bfloat16 and float16 only, cache included; {_OTHERWISE}"
    if spec.head_dim not in _HEAD_DIMS:
        return f"it has no kernels for heads of {spec.head_dim}; {_OTHERWISE}"
    if find_spec("flashinfer") is None:
        return f"it is not installed; pip install 'chairlift[gpu]' or {_OTHERWISE}"
    return ""


class FlashKernels:
    """For attention of one kind, the same in all layers."""

    def __init__(self, spec: AttentionSpec, block_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.spec = spec
        self.block_size = block_size
        self.dtype = dtype
        self._device = device

    @property
    def decodes_by_tensor_cores(self) -> bool:
        return self.spec.num_heads // self.spec.num_kv_heads >= _MIN_GROUP

    def compile(self) -> None:
        """Returns when they are there."""
        try:
            specs = self._specs()
            if not all(spec.is_compiled for spec in specs):
                print("chairlift: compiling FlashInfer's kernels, once: a minute or so", file=sys.stderr, flush=True)
            _build(specs)
        except Exception as error:
            raise InvalidConfig(f"attention flashinfer: {_summary(error)}; {_OTHERWISE}") from error

    def _specs(self) -> list[Any]:
        """The kernels that `FlashPlanner` needs, as FlashInfer describes them to its compiler."""
        os.environ.setdefault("FLASHINFER_LOGGING_LEVEL", "warning")  # it tells of every kernel it loads
        from flashinfer import jit
        from flashinfer.utils import determine_attention_backend

        kinds = (self.dtype,) * 3 + (torch.int32, self.spec.head_dim, self.spec.head_dim)
        options = (0, self.spec.window > 0, False)  # no positions added, a window or none, scores not capped
        fastest = determine_attention_backend(self._device, 0, False, False, self.dtype, self.dtype)
        specs = [jit.gen_batch_prefill_module(fastest, *kinds, *options, False)]
        if not self.decodes_by_tensor_cores:
            specs.append(jit.gen_batch_decode_module(*kinds, *options))
        elif fastest != "fa2":  # what decodes by tensor cores run on
            specs.append(jit.gen_batch_prefill_module("fa2", *kinds, *options, False))
        return specs


def _build(specs: list[Any]) -> None:
    from flashinfer.jit import build_jit_specs

    num_jobs = min(hardware.num_cpus(), hardware.free_memory(torch.device("cpu")) // _COMPILER_BYTES)
    os.environ.setdefault("MAX_JOBS", str(max(1, num_jobs)))
    build_jit_specs(specs, verbose=False)


def _summary(error: Exception) -> str:
    """One line: of a compiler's output the first that names an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in lines if "error:" in line), lines[0])
