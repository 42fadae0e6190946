"""Which launches may begin early; what such kernels do before they wait: test_compiled.py."""

import pytest
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from chairlift.runner.cuda.dependent_launch import dependent
from chairlift.runner.cuda.start.compiler import DriverStub

LATE = {"IS_DEPENDENT": False}


@pytest.mark.parametrize(("arch", "can"), [(80, False), (90, True), (100, True)])
def test_gpus_from_hopper_on_launch_early_where_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, arch: int, can: bool
) -> None:
    monkeypatch.setattr(knobs.runtime, "interpret", False)
    driver.set_active(DriverStub(GPUTarget("cuda", arch, 32)))
    try:
        assert dependent(True) == ({"IS_DEPENDENT": True, "launch_pdl": True} if can else LATE)
        assert dependent(False) == LATE
    finally:
        driver.set_active(None)


def test_nothing_is_early_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.runtime, "interpret", True)
    assert dependent(True) == LATE
