"""Which launches may begin early; what such kernels do before they wait: test_compiled.py."""

import pytest
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from chairlift.runner.cuda.dependent_launch import early
from chairlift.runner.cuda.start.compiler import Absent

LATE = {"IS_EARLY": False}


@pytest.mark.parametrize(("arch", "can"), [(80, False), (90, True), (100, True)])
def test_gpus_from_hopper_on_launch_early_where_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, arch: int, can: bool
) -> None:
    monkeypatch.setattr(knobs.runtime, "interpret", False)
    driver.set_active(Absent(GPUTarget("cuda", arch, 32)))
    try:
        assert early(True) == ({"IS_EARLY": True, "launch_pdl": True} if can else LATE)
        assert early(False) == LATE
    finally:
        driver.set_active(None)


def test_nothing_is_early_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs.runtime, "interpret", True)
    assert early(True) == LATE
