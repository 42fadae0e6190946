"""The use of the engine's GPU, as NVML tells it: the management library that comes with the driver.

Always: nothing is changed and no failure is raised; what cannot be read is None, with one line in the log. The device
is found by the UUID that CUDA gives it: NVML counts all GPUs of the machine, CUDA only the visible ones, and a MIG
slice has a UUID of its own. Needs no torch.
"""

import ctypes
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from chairlift.telemetry.device import DeviceReader, DeviceUse

T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Shares(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))  # percent


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Unreadable(Exception):
    pass


def find_reader(load: Callable[[str], Any] = ctypes.CDLL) -> DeviceReader | None:
    """Reads the first device that CUDA sees; None where NVML does not know it."""
    try:
        uuid = _cuda_uuid(load("libcuda.so.1"))
        nvml = load("libnvidia-ml.so.1")
        _call(nvml, "nvmlInit_v2")
        return _Reader(nvml, _device(nvml, uuid)).read
    except (OSError, _Unreadable) as error:
        _log.debug("the use of the GPU is not measured: %s", error)
        return None


class _Reader:
    def __init__(self, nvml: Any, device: ctypes.c_void_p) -> None:
        self._nvml = nvml
        self._device = device
        self._logged: set[str] = set()

    def read(self) -> DeviceUse:
        shares = self._get("nvmlDeviceGetUtilizationRates", _Shares())
        memory = self._get("nvmlDeviceGetMemoryInfo", _Memory())
        power = self._get("nvmlDeviceGetPowerUsage", ctypes.c_uint())  # milliwatts
        limit = self._get("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint())
        return DeviceUse(
            None if shares is None else shares.gpu / 100,
            None if memory is None else memory.used,
            None if memory is None else memory.total,
            None if power is None else power.value / 1000,
            None if limit is None else limit.value / 1000,
        )

    def _get(self, name: str, out: T) -> T | None:
        try:
            _call(self._nvml, name, self._device, ctypes.byref(out))  # type: ignore[arg-type]
        except _Unreadable as error:
            if name not in self._logged:
                self._logged.add(name)
                _log.debug("the use of the GPU is measured in part: %s", error)
            return None
        return out


def _cuda_uuid(cuda: Any) -> UUID:
    device, octets = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    _call(cuda, "cuInit", 0)
    _call(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    _call(cuda, "cuDeviceGetUuid_v2", ctypes.byref(octets), device)
    return UUID(bytes=bytes(octets))


def _device(nvml: Any, uuid: UUID) -> ctypes.c_void_p:
    device = ctypes.c_void_p()
    for kind in ("GPU", "MIG"):
        with suppress(_Unreadable):
            _call(nvml, "nvmlDeviceGetHandleByUUID", f"{kind}-{uuid}".encode(), ctypes.byref(device))
            return device
    raise _Unreadable(f"NVML knows no device {uuid}")


def _call(library: Any, name: str, *arguments: Any) -> None:
    try:
        code = getattr(library, name)(*arguments)  # without the interpreter's lock
    except AttributeError:
        raise _Unreadable(f"the driver has no {name}") from None
    if code:
        raise _Unreadable(f"{name} gives error {code}")
