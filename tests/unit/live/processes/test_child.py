import pytest

from chairlift.core.errors import InvalidConfig
from chairlift.live.processes.child import Child
from fakes import missing_package


def test_a_missing_package_is_told_to_the_parent_that_waits(capfd: pytest.CaptureFixture[str]) -> None:
    child = Child("engine", missing_package.before_ready)
    with pytest.raises(InvalidConfig, match="the module abc_xyz is not installed, which chairlift needs: pip install"):
        child.wait_ready()
    child.process.join()
    assert capfd.readouterr().err == ""


def test_a_package_that_is_missed_later_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    child = Child("engine", missing_package.after_ready)
    assert child.wait_ready() == "ready"
    child.process.join()
    assert "ModuleNotFoundError: No module named 'abc_xyz'" in capfd.readouterr().err
