"""Devices of torch that are used by name alone."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from chairlift.cli.main import main
from chairlift.config.settings import UNTRIED_DEVICES, Settings
from chairlift.core.errors import InvalidConfig
from chairlift.runner.kernels import check_exact, pick_kernels
from chairlift.runner.machine import hardware
from chairlift.runner.machine.devices import find_device
from chairlift.serving.parent import serve

TESTS = Path(__file__).parents[3]
XPU, MPS = torch.device("xpu"), torch.device("mps")
# The same requests on a CPU and on a device that torch knows as `npu`, with blocks that are swapped out and back.
BOTH = """
import sys
from pathlib import Path
from fakes.npu import set_up
from fakes.tiny_model import write_tiny_model
kept = set_up()
from chairlift import LLM, SamplingParams
from chairlift.runner.kv_cache import KvCache
model = str(write_tiny_model(Path(sys.argv[1]) / "tiny"))
wishes = (
    {"temperature": 0, "logprobs": 2, "prompt_logprobs": 1},
    {"temperature": 0.8, "seed": 3, "top_p": 0.9, "n": 2},
    {"temperature": 1.0, "seed": 5, "repetition_penalty": 1.2},
)
options = {"dtype": "float32", "block_size": 4, "num_blocks": 14, "max_model_len": 48, "preemption": "swap"}
prompts = ["a b c d e f", "hello", "the quick brown fox"]
def answers(device):
    llm = LLM(model, device=device, kernels="torch", **options)
    return [llm.generate(prompts, SamplingParams(max_tokens=24, **each)) for each in wishes]
here = answers("cpu")
swapped, move_blocks = [], KvCache.move_blocks
def watched(cache, swap_outs=(), swap_ins=(), copies=()):
    swapped.extend(swap_ins)
    move_blocks(cache, swap_outs, swap_ins, copies)
KvCache.move_blocks = watched
assert answers("npu") == here
assert swapped
"""

ROWS = """
from fakes.npu import set_up
kept = set_up()
import torch
from chairlift.runner.hooks import LogitsRecorder
seen = LogitsRecorder(lambda _, position: position == 100)
seen([1, 2], [99, 100], torch.arange(8.0).reshape(2, 4).to("npu"))
assert [(found.request, found.row.tolist()) for found in seen.take()] == [(2, [4.0, 5.0, 6.0, 7.0])]
"""


@pytest.fixture
def xpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has one, and no NVIDIA GPU."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: XPU)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize("name", UNTRIED_DEVICES)
def test_a_device_that_torch_does_not_see_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    assert main(["generate", "--device", name, "hello"]) == 2
    assert capsys.readouterr() == ("", f"chairlift: error: device {name}: torch sees none here; use --device cpu\n")
    with pytest.raises(InvalidConfig, match=f"device {name}: torch sees none here"):
        serve(Settings(device=name, model="nothing is looked for"))


@pytest.mark.usefixtures("xpu")
def test_a_device_is_used_by_its_name_alone() -> None:
    assert hardware.pick_device("xpu") == XPU
    assert hardware.pick_device("auto").type == "cpu"
    with pytest.raises(InvalidConfig, match="device npu: torch sees none here"):
        hardware.pick_device("npu")


@pytest.mark.usefixtures("xpu")
def test_it_runs_on_torchs_operations() -> None:
    assert pick_kernels("auto", XPU, torch.bfloat16) == "torch"
    for name in ("native", "triton"):
        with pytest.raises(InvalidConfig, match=f"kernels {name}: they do not run on xpu"):
            pick_kernels(name, XPU, torch.bfloat16)
    with pytest.raises(InvalidConfig, match="use --device cpu, or leave --exact out"):
        check_exact("torch", XPU)
    with pytest.raises(InvalidConfig, match="device xpu: plans are for a CPU or an NVIDIA GPU"):
        find_device("xpu", None)


def test_it_computes_in_16_bits_as_weights_are_stored() -> None:
    assert hardware.resolve_dtype("auto", XPU, "bfloat16") is torch.bfloat16
    assert hardware.resolve_dtype("auto", MPS, "float16") is torch.float16
    with pytest.raises(InvalidConfig, match="dtype float64: the device mps does not have it"):
        hardware.resolve_dtype("float64", MPS, "bfloat16")


def test_its_own_memory_counts_where_it_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda device: (7, 9))
    assert hardware.free_memory(XPU) == 7

    def no_memory(device: torch.device) -> tuple[int, int]:
        raise RuntimeError("it has no memory of its own")

    monkeypatch.setattr(torch.accelerator, "get_memory_info", no_memory)
    assert 7 < hardware.free_memory(MPS) <= psutil.virtual_memory().total


@pytest.mark.nightly
@pytest.mark.parametrize("script", [BOTH, ROWS], ids=["answers", "rows of logits"])
def test_what_comes_is_what_a_cpu_gives(script: str, tmp_path: Path) -> None:
    search = [str(TESTS), str(TESTS.parent / "src")]
    code = f"import sys; sys.path[:0] = {search}\n{script}"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
