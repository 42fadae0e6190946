"""The use of the processor's instructions, and the reasons for missing native kernels."""

import platform
import shutil
from pathlib import Path

import pytest

from chairlift.runner.machine import instructions
from chairlift.runner.machine.instructions import in_words, why_not_native
from chairlift.runner.native.library import HAS_AVX2, HAS_AVX512, HAS_DOTPROD, HAS_NEON


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder without kernels, on a processor that they support, with a compiler."""
    monkeypatch.setattr(instructions.library, "load", lambda: None)
    monkeypatch.setattr(instructions.library, "features", lambda: 0)
    monkeypatch.setattr(instructions, "_FOLDER", tmp_path)
    monkeypatch.setattr(instructions, "cpu_features", lambda: ("avx2",))
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return tmp_path


def test_a_loaded_library_has_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions.library, "load", lambda: object())
    assert why_not_native() == ""


def test_without_a_compiler_the_reason_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no C compiler, or it failed; install it again" in why_not_native()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert why_not_native().endswith("there is no C compiler; install gcc or clang, then chairlift again")


def test_a_library_that_cannot_be_loaded_must_be_built_again(no_library: Path) -> None:
    (no_library / "_kernels.abi3.so").touch()
    assert why_not_native() == "were built for another system or by another version; install chairlift again"


@pytest.mark.parametrize(("machine", "features", "least"), [("x86_64", ("sse",), "avx2"), ("arm64", ("sve",), "asimd")])
def test_a_processor_without_the_least_instruction_is_named(
    monkeypatch: pytest.MonkeyPatch, machine: str, features: tuple[str, ...], least: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(instructions, "cpu_features", lambda: features)
    assert why_not_native() == f"need {least}, which this processor does not have"


def test_other_processors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert why_not_native() == "are for x86_64 and aarch64, and this processor is riscv64"


def test_each_instruction_is_used_missing_or_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(instructions.library, "load", lambda: object())
    monkeypatch.setattr(instructions.library, "features", lambda: HAS_NEON | HAS_DOTPROD)
    monkeypatch.setattr(instructions, "cpu_features", lambda: ("asimd", "asimddp", "sve"))
    told = in_words()
    assert told["asimd"] == "used: all native kernels"
    assert told["asimddp"] == "used: products of quantised weights"
    assert told["i8mm"] == "missing: prompts and batches are slower with quantised weights"
    assert told["bf16"].startswith("missing: float32 is the default number type")
    assert told["sve"] == "there: the native kernels have no use for it"


def test_an_instruction_that_the_system_disables_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions.library, "load", lambda: object())
    monkeypatch.setattr(instructions.library, "features", lambda: HAS_AVX2 | HAS_AVX512)
    monkeypatch.setattr(instructions, "cpu_features", lambda: ("avx2", "avx512f", "amx_bf16"))
    told = in_words()
    assert told["avx512f"] == "used: vectors of 16 numbers"
    assert told["amx_bf16"] == "there, but not used: the system does not let programs use it"


def test_without_kernels_no_instruction_is_used() -> None:
    assert in_words()["avx2"] == "there, but not used: there are no native kernels"


def test_another_processor_has_no_known_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert in_words() == {"riscv64": f"the native kernels {why_not_native()}"}
