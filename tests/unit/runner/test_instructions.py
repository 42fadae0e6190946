"""Why there are no native kernels, where there are none."""

import platform
import shutil
from pathlib import Path

import pytest

from chairlift.runner import instructions
from chairlift.runner.instructions import why_not_native


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder in which there is none; the processor is one that they are for, and there is a compiler."""
    monkeypatch.setattr(instructions.library, "load", lambda: None)
    monkeypatch.setattr(instructions, "_FOLDER", tmp_path)
    monkeypatch.setattr(instructions, "cpu_features", lambda: ("avx2",))
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return tmp_path


def test_where_there_is_one_there_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions.library, "load", lambda: object())
    assert why_not_native() == ""


def test_without_a_compiler_one_is_to_be_installed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no C compiler, or it failed; install it again" in why_not_native()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert why_not_native().endswith("there is no C compiler; install gcc or clang, then chairlift again")


def test_a_library_that_cannot_be_loaded_is_to_be_built_again(no_library: Path) -> None:
    (no_library / "_kernels.abi3.so").touch()
    assert why_not_native() == "were built for another system or by another version; install chairlift again"


@pytest.mark.parametrize(("machine", "features", "least"), [("x86_64", ("sse",), "avx2"), ("arm64", ("sve",), "asimd")])
def test_a_processor_without_the_least_they_need_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch, machine: str, features: tuple[str, ...], least: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(instructions, "cpu_features", lambda: features)
    assert why_not_native() == f"need {least}, which this processor does not have"


def test_other_processors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert why_not_native() == "are for x86_64 and aarch64, and this processor is riscv64"
