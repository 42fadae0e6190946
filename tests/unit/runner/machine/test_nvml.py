import ctypes
import logging
import subprocess
import sys

import pytest

from chairlift.runner.machine.nvml import find_reader
from chairlift.telemetry.device import DeviceUse
from fakes.nvml_library import LOST, NOT_SUPPORTED, FakeCuda, FakeDriver

ALL = DeviceUse(0.87, 61 << 30, 80 << 30, 410.5, 700.0)
# Each call, and what is known without it.
PARTS = {
    "nvmlDeviceGetUtilizationRates": DeviceUse(None, 61 << 30, 80 << 30, 410.5, 700.0),
    "nvmlDeviceGetMemoryInfo": DeviceUse(0.87, None, None, 410.5, 700.0),
    "nvmlDeviceGetPowerUsage": DeviceUse(0.87, 61 << 30, 80 << 30, None, 700.0),
    "nvmlDeviceGetEnforcedPowerLimit": DeviceUse(0.87, 61 << 30, 80 << 30, 410.5, None),
}


@pytest.fixture(autouse=True)
def _debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.mark.parametrize("kind", ["GPU", "MIG"])
def test_the_device_that_cuda_sees_is_read(kind: str) -> None:
    read = find_reader(FakeDriver(kind))
    assert read is not None
    assert read() == ALL


@pytest.mark.parametrize("call", PARTS)
def test_what_one_call_does_not_tell_is_none_and_logged_once(call: str, caplog: pytest.LogCaptureFixture) -> None:
    driver = FakeDriver()
    driver.nvml.errors[call] = NOT_SUPPORTED
    read = find_reader(driver)
    assert read is not None
    assert read() == read() == PARTS[call]
    (record,) = caplog.records
    assert (record.levelname, record.message) == (
        "DEBUG",
        f"the use of the GPU is measured in part: {call} gives error 3",
    )


def test_a_device_that_vanishes_is_unknown_until_it_is_back() -> None:
    driver = FakeDriver()
    read = find_reader(driver)
    assert read is not None
    driver.nvml.errors = dict.fromkeys(PARTS, LOST)
    assert read() == DeviceUse()
    driver.nvml.errors = {}
    assert read() == ALL


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_nothing_is_read_without_the_library(library: str, caplog: pytest.LogCaptureFixture) -> None:
    driver = FakeDriver()
    del driver.libraries[library]
    assert find_reader(driver) is None
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    assert library in record.message


@pytest.mark.parametrize("call", ["nvmlInit_v2", "nvmlDeviceGetHandleByUUID"])
def test_nothing_is_read_where_nvml_fails_from_the_start(call: str) -> None:
    driver = FakeDriver()
    driver.nvml.errors[call] = 9
    assert find_reader(driver) is None


def test_nothing_is_read_of_a_device_that_nvml_does_not_know(caplog: pytest.LogCaptureFixture) -> None:
    assert find_reader(FakeDriver("other")) is None
    assert "NVML knows no device 11111111-2222" in caplog.text


def test_nothing_is_read_where_the_driver_lacks_a_call(caplog: pytest.LogCaptureFixture) -> None:
    class Old(FakeCuda):
        cuDeviceGetUuid_v2 = property()  # type: ignore[assignment]

    driver = FakeDriver()
    driver.libraries["libcuda.so.1"] = Old()
    assert find_reader(driver) is None
    assert "the driver has no cuDeviceGetUuid_v2" in caplog.text


def test_a_real_library_without_these_calls_is_survived() -> None:
    assert find_reader(lambda name: ctypes.CDLL(None)) is None


def test_torch_is_not_needed() -> None:
    script = "import sys, chairlift.runner.machine.nvml; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
