"""What Triton needs beside itself, and what becomes of a start that lacks it."""

import logging
import shutil
import sysconfig
from pathlib import Path

import pytest
import torch

from chairlift.config.settings import Settings
from chairlift.core.errors import InvalidConfig
from chairlift.models.source import load_model_config, locate
from chairlift.runner import kernels
from chairlift.runner.kernels import pick_kernels, why_not_triton_compiles
from chairlift.runner.machine import hardware
from chairlift.runner.start.load import load_runner
from fakes.tiny_model import write_tiny_model

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def toolchain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of headers, which are there; so is a compiler, and a GPU."""
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(hardware, "capability", lambda device: (9, 0))
    monkeypatch.setattr(kernels, "find_spec", lambda name: object())
    return tmp_path


def test_with_a_compiler_and_headers_kernels_are_ours() -> None:
    assert why_not_triton_compiles() == ""
    assert pick_kernels("auto", CUDA, torch.bfloat16) == "triton"


def test_without_a_compiler_torchs_operations_are_used_and_ours_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert pick_kernels("auto", CUDA, torch.bfloat16) == "torch"
    with pytest.raises(InvalidConfig, match="kernels triton: they need a C compiler, and there is none; install gcc"):
        pick_kernels("triton", CUDA, torch.bfloat16)
    monkeypatch.setenv("CC", "/opt/cc")
    assert pick_kernels("auto", CUDA, torch.bfloat16) == "triton"


def test_without_pythons_headers_the_file_is_named(toolchain: Path) -> None:
    (toolchain / "Python.h").unlink()
    assert f"there is no {toolchain}/Python.h" in why_not_triton_compiles()


def test_a_start_without_its_kernels_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernels, "why_not_native", lambda: "were not built")
    source = locate(str(write_tiny_model(tmp_path / "tiny")))
    with caplog.at_level(logging.WARNING):
        loaded = load_runner(Settings(device="cpu", num_blocks=8, max_model_len=64), source, load_model_config(source))
    assert loaded.kernels == "torch"
    line = "the native kernels cannot be used: they were not built; torch's operations take their place and are slower"
    assert [record.getMessage() for record in caplog.records] == [line]
