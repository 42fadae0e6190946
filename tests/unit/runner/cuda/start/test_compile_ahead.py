"""When kernels are compiled ahead and when not, and that a start goes on either way."""

import json
import logging
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from chairlift.core.limits import Limits
from chairlift.models.spec import uniform_model
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.cuda.start import compile_ahead, dry_run
from chairlift.runner.cuda.start.compile_ahead import CompileAhead
from chairlift.runner.kernels import make_runner
from chairlift.runner.weights.assemble import WeightFormat

CONFIG = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=96, vocab_size=192, max_model_len=256, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip
LIMITS = Limits(vocab_size=192, max_model_len=256, block_size=16, num_blocks=1, max_running=20, max_step_tokens=256)
KEEP = "import sys, pathlib; pathlib.Path(sys.argv[1], 'order').write_text(sys.stdin.read())"
FAIL = "import sys; sys.exit('no C compiler')"


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Dry runs that find one kernel; each is noted in `told`."""
    asked: list[str] = []

    def kernels_of_start(*_: Any) -> list[str]:
        asked.append("dry run")
        return ["a kernel"]

    monkeypatch.setattr(dry_run, "kernels_of_start", kernels_of_start)
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(compile_ahead, "triton_key", lambda: "")
    let_it(monkeypatch, KEEP, tmp_path)
    return asked


def let_it(monkeypatch: pytest.MonkeyPatch, script: str, folder: Path) -> None:
    monkeypatch.setattr(compile_ahead, "_COMPILER", (sys.executable, "-c", script, str(folder)))


def start(limits: Limits = LIMITS) -> None:
    make = partial(make_runner, "triton")
    CompileAhead(make, CONFIG, CudaOps(), torch.bfloat16, torch.bfloat16, WeightFormat(), limits, (9, 0)).wait()


def test_the_compiler_is_told_what_and_for_which_gpu(tmp_path: Path) -> None:
    start()
    assert json.loads((tmp_path / "order").read_text()) == {"target": ["cuda", 90, 32], "kernels": ["a kernel"]}


def test_the_next_start_takes_no_notice_and_another_one_does(told: list[str]) -> None:
    start()
    start()
    assert len(told) == 1
    start(replace(LIMITS, max_running=7))
    assert len(told) == 2


def test_a_compiler_that_fails_is_told_of_and_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    let_it(monkeypatch, FAIL, tmp_path)
    with caplog.at_level(logging.WARNING):
        start()
    assert "compiled one by one: no C compiler" in caplog.text
    start()
    assert len(told) == 2


def test_a_dry_run_that_fails_fails_no_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> list[str]:
        raise NotImplementedError("an unknown operation")

    monkeypatch.setattr(dry_run, "kernels_of_start", fail)
    with caplog.at_level(logging.WARNING):
        start()
    assert "an unknown operation" in caplog.text
    assert not (tmp_path / "order").exists()
