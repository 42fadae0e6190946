"""Starts MindSpore: its target, number of threads, and silence. Once in a process, before any of its operations."""

import contextlib
import io
import os
from typing import Any

import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.runner.machine import hardware
from chairlift.runner.mindspore.installed import check_installed

_DTYPES = {"cpu": (torch.float32, torch.float64), "ascend": (torch.float16,)}  # by target, the usual one first


def start(settings: Settings, threads: int) -> str:
    """-> the target, cpu or ascend"""
    device = settings.device
    check_installed(device)
    os.environ.setdefault("GLOG_v", "3")  # errors alone
    import mindspore as ms

    _, _, target = device.partition(":")
    has_ascend = ms.device_context.ascend.is_available()
    if target == "ascend" and not has_ascend:
        raise InvalidConfig(f"device {device}: MindSpore sees none here; use --device mindspore:cpu")
    target = target or ("ascend" if has_ascend else "cpu")
    if target == "ascend" and settings.num_blocks is None and settings.kv_memory is None:
        raise InvalidConfig(f"device {device}: its free memory is not measured; give --kv-memory or --num-blocks")
    ms.set_device({"cpu": "CPU", "ascend": "Ascend"}[target])
    if target == "cpu":
        _set_threads(ms, threads)
        ms.runtime.launch_blocking()  # hands each operation to another thread otherwise, which takes longer than most
    _forget_numpy(ms)
    return target


def pick_dtype(name: str, target: str) -> torch.dtype:
    usual, *others = _DTYPES[target]
    if name in ("auto", hardware.dtype_name(usual)):
        return usual
    for other in others:
        if name == hardware.dtype_name(other):
            return other
    names = " or ".join(map(hardware.dtype_name, _DTYPES[target]))
    raise InvalidConfig(f"dtype {name}: MindSpore computes in {names} here; leave --dtype out")


def _set_threads(ms: Any, threads: int) -> None:
    with contextlib.suppress(RuntimeError):  # set before in this process
        ms.device_context.cpu.op_tuning.threads_num(threads)


def _forget_numpy(ms: Any) -> None:
    """MindSpore 2.10 was built for numpy 1 and looks for it in its first operation, which fails beside numpy 2; none of
    the others needs it."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemError):
        ms.ops.transpose(ms.ops.ones((1, 1)), (0, 1))
