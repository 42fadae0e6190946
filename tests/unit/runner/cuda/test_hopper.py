"""When the kernels for Hopper are used; what they compute: tests/gpu/test_hopper.py."""

import logging

import pytest
import torch
import triton
from triton import knobs

from chairlift.runner.cuda import hopper as kernels
from chairlift.runner.cuda.experts.hopper import HopperExperts  # with the interpreter, before a test pretends otherwise
from chairlift.runner.cuda.hopper import Hopper
from chairlift.runner.cuda.ops import CudaOps

CPU = torch.device("cpu")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hopper GPU, as far as can be told without launching anything: there is no interpreter for these kernels."""
    monkeypatch.setattr(knobs.runtime, "interpret", False)
    monkeypatch.setattr(kernels, "arch", lambda: 90)
    monkeypatch.setattr(kernels, "_made", lambda _: (object(), object()))
    for name in ("_product_error", "_attention_error"):
        monkeypatch.setattr(kernels, name, lambda *_: 0.0)
    monkeypatch.setattr(kernels, "_experts_errors", lambda *_: [0.0])


@pytest.mark.usefixtures("gpu")
def test_they_are_used_on_hopper() -> None:
    hopper = Hopper()
    hopper.begin(CPU)
    assert hopper.few_rows is not None and hopper.prompts is not None and hopper.experts is None
    hopper.begin(CPU, has_mxfp4=True)
    assert isinstance(hopper.experts, HopperExperts)


@pytest.mark.usefixtures("gpu")
def test_one_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    def fail(*_: object) -> list[float]:
        raise RuntimeError("no image")

    monkeypatch.setattr(kernels, "_experts_errors", fail)
    hopper = Hopper()
    with caplog.at_level(logging.WARNING):
        hopper.begin(CPU, has_mxfp4=True)
    assert hopper.few_rows is not None and hopper.experts is None
    assert caplog.messages == ["the kernel for experts in MXFP4 on Hopper is not used: no image"]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("arch", [0, 80, 89, 100, 120])
def test_other_gpus_have_the_plain_kernels(monkeypatch: pytest.MonkeyPatch, arch: int) -> None:
    monkeypatch.setattr(kernels, "arch", lambda: arch)
    hopper = Hopper()
    hopper.begin(CPU)
    assert hopper == Hopper()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no image"),
        triton.TritonError("at 3:1:\nno such layout"),
        AttributeError("no barrier"),
        AssertionError("base must be 16-byte aligned"),
        TypeError("unexpected keyword"),
    ],
)
def test_where_they_fail_one_line_says_so_and_the_plain_kernels_are_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail(*_: object) -> float:
        raise error

    monkeypatch.setattr(kernels, "_attention_error", fail)
    hopper = Hopper()
    with caplog.at_level(logging.WARNING):
        hopper.begin(CPU)
    assert hopper == Hopper()
    assert caplog.messages == [f"the kernels for Hopper are not used: {str(error).splitlines()[-1]}"]


@pytest.mark.usefixtures("gpu")
def test_the_cause_of_a_failed_compilation_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> float:
        raise triton.TritonError("at 3:1:\n  ^") from AttributeError("no such layout")

    monkeypatch.setattr(kernels, "_product_error", fail)
    with caplog.at_level(logging.WARNING):
        Hopper().begin(CPU)
    assert caplog.messages == ["the kernels for Hopper are not used: no such layout"]


def test_a_start_is_told_apart_by_what_decides_on_kernels_alone() -> None:
    assert repr(vars(CudaOps())) == repr(vars(CudaOps()))


@pytest.mark.parametrize(("num_rows", "is_taken"), [(0, False), (1, True), (64, True), (65, False)])
def test_a_product_without_rows_or_with_many_is_left_to_others(num_rows: int, is_taken: bool) -> None:
    from chairlift.runner.cuda.products.hopper import FewRows

    x, matrix = (torch.zeros(count, 256, dtype=torch.bfloat16) for count in (num_rows, 8))
    assert FewRows.takes(x, matrix) is is_taken
