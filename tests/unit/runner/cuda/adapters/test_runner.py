"""A small model with adapters by the exact CUDA path in Triton's interpreter: alone, together, in chunks, with fewer
slots than adapters, and against torch's operations."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from chairlift.core.engine import Engine
from chairlift.core.limits import Limits
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.ports import Runner
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.models.adapters.adapter import read_adapter
from chairlift.models.files.hf import load_hf
from chairlift.runner.adapters.low_rank import make_host_adapter
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.adapters.pieces import make_slot_adapter
from chairlift.runner.cuda.ops import CudaOps
from chairlift.runner.kernels import make_runner
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.start.warm_up import warm_up
from chairlift.runner.torch.ops import TorchOps
from chairlift.runner.weights.assemble import build_model
from chairlift.runner.weights.hf import HfTensors
from fakes.adapters import write_adapter
from fakes.clocks import CountingClock
from fakes.requests import make_request, make_samples
from fakes.tiny_model import write_tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") != "1", reason="with a GPU the kernels are compiled for it: see tests/gpu"
    ),
    pytest.mark.usefixtures("no_gpu", "ordered_dots"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # padding is computed from whatever lies in memory
]
CPU = torch.device("cpu")
Rows = dict[tuple[int, int], Tensor]


class World:
    def __init__(self, folder: Path) -> None:
        write_tiny_model(folder / "model")
        self.folder = folder
        self.config = load_hf(folder / "model")
        self.config = replace(self.config, max_model_len=64)
        for number, rank in ((1, 4), (2, 18), (3, 8)):
            write_adapter(folder / str(number), number, rank)
        self.limits = Limits(
            vocab_size=self.config.vocab_size, max_model_len=64, block_size=4, num_blocks=60, max_running=5,
            max_step_tokens=20, num_adapter_slots=3,
        )  # fmt: skip

    def runner(self, kernels: str, limits: Limits) -> Runner:
        ops = CudaOps(exact=True) if kernels == "triton" else TorchOps()
        model = build_model(self.config, ops, HfTensors(self.folder / "model"), torch.float32, CPU, 64)

        def read(path: Path) -> Any:
            spec = read_adapter(path, self.config, 32)
            if kernels == "triton":
                return make_slot_adapter(spec, self.config)
            return make_host_adapter(spec, ops, torch.float32)

        store: AdapterStore[Any] = AdapterStore(read, 1 << 30, 32)
        for number in (1, 2, 3):
            store.read(number, str(self.folder / str(number)))
        kv = KvCache(self.config, limits.num_blocks, 4, torch.float32, CPU)
        return make_runner(kernels, model, kv, CPU, limits, exact=True, adapters=store)

    def run(self, kernels: str, limits: Limits) -> Rows:
        runner: Any = self.runner(kernels, limits)
        rows: Rows = {}

        def see(requests: Any, positions: Any, logits: Tensor) -> None:
            rows.update(zip(zip(requests, positions, strict=True), logits.clone(), strict=True))

        runner.on_logits = see
        engine = Engine(Scheduler(limits, Fcfs()), runner, CountingClock())
        for i, (length, adapter) in enumerate(((9, 1), (3, 0), (7, 2), (12, 3), (5, 1))):
            prompt = [(7 * i * place + place) % 61 for place in range(length)]
            engine.add((make_request(i, prompt, 3, temperature=0.0, adapter=adapter),))
        engine.add(make_samples(10, [4, 5, 6], 2, 3, temperature=0.0, adapter=2))
        while engine.has_work:
            engine.step()
        return rows


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("adapters"))


@pytest.mark.nightly
def test_bits_are_the_same_alone_and_among_other_adapters_and_near_those_of_torch(world: World) -> None:
    alone = world.run("triton", replace(world.limits, max_running=2, num_adapter_slots=1))
    assert len(alone) == 21
    together = world.run("triton", world.limits)
    assert {place for place, row in alone.items() if not torch.equal(row, together[place])} == set()
    torch_rows = world.run("torch", world.limits)
    assert torch_rows.keys() == alone.keys()
    for place, row in torch_rows.items():
        torch.testing.assert_close(row, alone[place], atol=2e-2, rtol=1e-3)


@pytest.mark.nightly
def test_an_empty_slot_warms_the_kernels_up(world: World) -> None:
    limits = replace(world.limits, max_running=1, max_step_tokens=4)
    warm_up(world.runner("triton", limits), limits)
