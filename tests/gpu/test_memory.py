"""A real GPU's memory: the share that was given holds, steps that do not fit are cut, weights arrive as they were."""

import random
from pathlib import Path

import pytest
import torch

from chairlift.config.settings import Settings
from chairlift.core.engine import Engine
from chairlift.core.errors import InvalidConfig
from chairlift.core.events import Finished, Shrunk, Token
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.source import Source
from chairlift.models.spec import uniform_model
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.start.load import Loaded, load_runner
from chairlift.runner.start.warm_up import prepare
from chairlift.runner.weights.dummy import DummyTensors
from chairlift.runner.weights.transfer import PIECE, transfer_to
from fakes.clocks import CountingClock
from fakes.requests import make_request

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

CUDA = torch.device("cuda")
MIB, GIB = 2**20, 2**30
CONFIG = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=1024, num_layers=4, num_heads=8, num_kv_heads=8, head_dim=128,
    intermediate_size=8192, vocab_size=8000, max_model_len=4096, rms_norm_eps=1e-5, rope_theta=10000.0,
)  # fmt: skip


def free() -> int:
    return int(torch.cuda.mem_get_info()[0])


def total() -> int:
    return int(torch.cuda.mem_get_info()[1])


def share_of(num_bytes: int) -> float:
    """Beside what is in use now."""
    torch.cuda.empty_cache()
    return min(1.0, (total() - free() + num_bytes) / total())


def load(tmp_path: Path, **changes: object) -> Loaded:
    settings = Settings(**{"device": "cuda", "dtype": "bfloat16", "load_format": "dummy", **changes})  # type: ignore[arg-type]
    return load_runner(settings, Source("folder", tmp_path, "made up"), CONFIG)


def serve(runner: Runner, limits: Limits, num_requests: int, longest: int) -> list[Token | Finished | Shrunk]:
    engine = Engine(Scheduler(limits, Fcfs()), runner, CountingClock())
    rng = random.Random(0)
    for i in range(num_requests):
        prompt = [rng.randrange(8000) for _ in range(rng.randint(longest // 2, longest))]
        more = {"temperature": 0.0} if i % 2 else {"temperature": 0.7, "top_p": 0.9, "logprobs": 2}
        engine.add((make_request(i + 1, prompt, 20, **more),))
    events: list[Token | Finished | Shrunk] = []
    while engine.has_work:
        events += [event for event in engine.step() if isinstance(event, Token | Finished | Shrunk)]
    return events


def num_complete(events: list[Token | Finished | Shrunk]) -> int:
    return sum(isinstance(event, Token) and event.finish is not None for event in events)


def test_the_share_holds_after_a_burst_and_is_used(tmp_path: Path) -> None:
    share = share_of(6 * GIB)
    loaded = load(tmp_path, memory=share, max_running=128)
    budget = loaded.budget
    assert budget is not None and min(budget.weights, budget.activations, budget.kv) > 0
    assert num_complete(serve(loaded.runner, loaded.limits, 300, 1000)) == 300
    while prepare(loaded.runner):  # graphs in the order of their sizes
        pass
    used = total() - free()
    assert used <= share * total() + 64 * MIB
    # What was planned for is in use, but for graphs that were not captured.
    assert used >= share * total() - budget.graphs - 512 * MIB
    assert budget.free >= (1 - share) * total() - 64 * MIB


@pytest.mark.parametrize("kernels", ["triton", "torch"])
def test_steps_that_do_not_fit_are_cut_and_every_request_finishes(tmp_path: Path, kernels: str) -> None:
    loaded = load(tmp_path, kernels=kernels, kv_memory=2 * GIB, max_step_tokens=16384, max_running=16)
    assert loaded.limits.max_step_tokens == 16384
    if isinstance(loaded.runner, CudaRunner):  # captured steps have their memory already
        loaded.runner.uses_graphs = False
    torch.cuda.empty_cache()
    hog = torch.empty(free() - 256 * MIB, dtype=torch.uint8, device=CUDA)
    events = serve(loaded.runner, loaded.limits, 16, 4000)
    del hog
    assert any(isinstance(event, Shrunk) for event in events)
    assert not [event.message for event in events if isinstance(event, Finished)]
    assert num_complete(events) == 16
    # With memory to spare again, the same runner does the same without.
    events = serve(loaded.runner, loaded.limits, 16, 4000)
    assert num_complete(events) == 16 and not any(isinstance(event, Shrunk) for event in events)


def test_steps_that_cannot_be_captured_are_run_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(tmp_path, kernels="triton", kv_memory=GIB, max_running=8)
    runner = loaded.runner
    assert isinstance(runner, CudaRunner)
    captured = runner.device._graphs._captured
    assert captured
    want = [event.token for event in serve(runner, loaded.limits, 8, 50) if isinstance(event, Token)]

    def no_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", no_memory)
    captured.clear()
    events = serve(runner, loaded.limits, 8, 50)
    assert [event.token for event in events if isinstance(event, Token)] == want
    assert not captured and not any(isinstance(event, Shrunk) for event in events)


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="the weights need"):
        load(tmp_path, memory=share_of(100 * MIB))


def test_a_share_that_leaves_no_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="--memory"):
        load(tmp_path, memory=share_of(290 * MIB))


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32, torch.float16])
def test_tensors_arrive_whole_and_rounded(stored: torch.dtype) -> None:
    source = torch.randn(3, 40 * PIECE // 6 + 5, dtype=torch.float32).to(stored)
    transfer = transfer_to(CUDA, 4)
    target = torch.empty(5, source.shape[1], dtype=torch.bfloat16, device=CUDA)
    for _ in range(3):
        target.zero_()
        transfer.copy(source, target[1:4])
        assert torch.equal(target[1:4].cpu(), source.to(torch.bfloat16))
        assert not target[0].any() and not target[4].any()
    transfer.close()


def test_dummy_weights_are_the_same_as_on_a_cpu() -> None:
    shape = (700, 9000)
    on_gpu = DummyTensors(CONFIG, torch.bfloat16, CUDA).read("lm_head.weight", shape)
    assert on_gpu.is_cuda
    assert torch.equal(on_gpu.cpu(), DummyTensors(CONFIG, torch.bfloat16).read("lm_head.weight", shape))
