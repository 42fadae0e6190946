"""A driver's two libraries as ctypes shows them: CUDA with one visible device, and NVML, whose calls may fail."""

from typing import Any
from uuid import UUID

NOT_SUPPORTED, LOST = 3, 15
VISIBLE = UUID("11111111-2222-3333-4444-555555555555")


class FakeCuda:
    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = 7
        return 0 if ordinal == 0 else 101

    def cuDeviceGetUuid_v2(self, octets: Any, device: Any) -> int:
        octets._obj[:] = VISIBLE.bytes
        return 0 if device.value == 7 else 101


class FakeNvml:
    def __init__(self, kind: str = "GPU") -> None:
        self._handles = {f"{kind}-{VISIBLE}".encode(): 5}
        self.errors: dict[str, int] = {}  # by call

    def nvmlInit_v2(self) -> int:
        return self._code("nvmlInit_v2")

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        if uuid not in self._handles:
            return 6
        handle._obj.value = self._handles[uuid]
        return self._code("nvmlDeviceGetHandleByUUID")

    def nvmlDeviceGetUtilizationRates(self, device: Any, shares: Any) -> int:
        assert device.value == 5
        shares._obj.gpu, shares._obj.memory = 87, 40
        return self._code("nvmlDeviceGetUtilizationRates")

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:
        assert device.value == 5
        memory._obj.total, memory._obj.free, memory._obj.used = 80 << 30, 19 << 30, 61 << 30
        return self._code("nvmlDeviceGetMemoryInfo")

    def nvmlDeviceGetPowerUsage(self, device: Any, milliwatts: Any) -> int:
        assert device.value == 5
        milliwatts._obj.value = 410_500
        return self._code("nvmlDeviceGetPowerUsage")

    def nvmlDeviceGetEnforcedPowerLimit(self, device: Any, milliwatts: Any) -> int:
        assert device.value == 5
        milliwatts._obj.value = 700_000
        return self._code("nvmlDeviceGetEnforcedPowerLimit")

    def _code(self, call: str) -> int:
        return self.errors.get(call, 0)


class FakeDriver:
    """To be called as `ctypes.CDLL` is."""

    def __init__(self, kind: str = "GPU") -> None:
        self.nvml = FakeNvml(kind)
        self.libraries: dict[str, Any] = {"libcuda.so.1": FakeCuda(), "libnvidia-ml.so.1": self.nvml}

    def __call__(self, name: str) -> Any:
        if name not in self.libraries:
            raise OSError(f"{name}: cannot open shared object file")
        return self.libraries[name]
