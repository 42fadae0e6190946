"""Which kernels a start launches, and that compiled by other processes it finds them; the GPU need not be there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

WORLD = """
import sys
from functools import partial
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction
from chairlift.models.spec import uniform_model
from chairlift.core.limits import Limits
from chairlift.runner import kernels
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.start import dry_run
from chairlift.runner.weights.assemble import WeightFormat

TARGET = GPUTarget("cuda", 90, 32)
CONFIG = uniform_model(
    architecture="LlamaForCausalLM", hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=int(sys.argv[1]),
    head_dim=16, intermediate_size=96, vocab_size=192, max_model_len=20000, rms_norm_eps=1e-5, rope_theta=10000.0,
    is_tied=sys.argv[1] == "2",
)
HAS_ADAPTERS = sys.argv[1] == "2"
LIMITS = Limits(
    vocab_size=192, max_model_len=20000, block_size=16, num_blocks=1, max_running=30, max_step_tokens=256,
    num_adapter_slots=2 * HAS_ADAPTERS,
)
BF16 = torch.bfloat16
ADAPTERS = AdapterStore(lambda path: None, 1, 20) if HAS_ADAPTERS else None
MAKE = partial(kernels.make_runner, "triton", adapters=ADAPTERS)
OPS = kernels.make_ops("triton", 1)
ARGUMENTS = MAKE, CONFIG, OPS, BF16, BF16, WeightFormat(), LIMITS, TARGET
"""
COMPILE = """
import json, sys
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from chairlift.runner.cuda.start import compiler

driver.set_active(compiler.DriverStub(GPUTarget("cuda", 90, 32)))
for data in json.load(sys.stdin):
    compiler.compile_kernel(data)
print("torch" in sys.modules)
"""
# A launch of any kernel goes as far as it can without a GPU, and Triton tells whether it had to compile. Then another
# model is started, in the same process, whose kernels are there by now.
LAUNCH = (
    WORLD
    + """
from unittest.mock import patch
found = []
knobs.compilation.listener = lambda **told: found.append((told["src"].name, told["cache_hit"]))
launch = lambda kernel, grid: lambda *args, **options: kernel.warmup(*args, grid=grid, **options)
with (
    patch.object(JITFunction, "__getitem__", launch), patch.object(dry_run, "_note", lambda noted, asked: False),
    patch.object(dry_run, "_NO_GPU", 0),
):
    dry_run.kernels_of_start(*ARGUMENTS)
import json
json.dump([found, dry_run.kernels_of_start(*ARGUMENTS)], sys.stdout)
"""
)

# Measuring, warming up and the first requests as they are run on a GPU, but for the GPU.
START = (
    WORLD
    + """
import json
from dataclasses import replace
from chairlift.runner.cuda.sampling.sampler import mask_rows
from chairlift.runner.cuda.step.graphs import Graphs
from chairlift.runner.kv_cache import KvCache
from chairlift.runner.start.synthetic_steps import GREEDY, MIXED, synthetic_step, with_adapter
from chairlift.runner.memory.measure import measure_footprint
from chairlift.runner.start.warm_up import prepare, warm_up
from chairlift.runner.weights.assemble import Assembly

class Event:
    def record(self): ...
    def query(self): return True
    def synchronize(self): ...

def capture(graphs, key, planned):
    with graphs._memory.padding(key):
        graphs._captured[key] = Graph, *graphs._forward.run(key, planned)

class Graph:
    def replay(): ...

torch.cuda.Event, Graphs._capture = Event, capture
CPU = torch.device("cpu")
told = dry_run.kernels_of_start(*ARGUMENTS)
with torch.inference_mode(), dry_run._noting(TARGET) as launched, dry_run._ShapesOnly():
    empty = dry_run._EmptyWeights(BF16)
    model = Assembly(CONFIG, OPS, empty, BF16, CPU, WeightFormat(), dry_run._NoTransfer(None)).build(20000)
    make = lambda limits: MAKE(model, KvCache(CONFIG, limits.num_blocks, 16, BF16, CPU), CPU, limits)
    measure_footprint(make, LIMITS, 1, lambda: 0, lambda: None)
    limits = replace(LIMITS, num_blocks=64)
    runner = make(limits)
    warm_up(runner, limits)
    for kinds in GREEDY, MIXED:
        some = [[(start, 1)] * count for start in (0, 5, 16, 5000, 9000, 19000) for count in (1, 2, 9, 17, 20)]
        crowd = [(3, 1), (9000, 2)] + [(0, 4)] * 24  # of more tiles than are captured
        some += [[(start, 1)] + [(0, 5)] * 29 for start in (5, 5000, 19000)]  # short prompts are rows
        for spans in [(0, 16)], [(0, 200)], [(200, 1)], [(3, 1), (0, 20)], [(3, 1)] * 19 + [(9000, 90)], crowd, *some:
            plan = synthetic_step(spans, limits, 0, kinds)
            for each in plan, with_adapter(plan):
                if HAS_ADAPTERS or not each.adapters:
                    runner.submit(each)
                    runner.collect()
    while prepare(runner):
        pass
    # As for structured requests, whose rows are a piece of all that was sent.
    mask_rows(torch.empty(4, 192), torch.empty(5, dtype=torch.int32)[1:], torch.empty(4, 6, dtype=torch.int32))
json.dump([told, list(launched)], sys.stdout)
"""
)


def run(script: str, folder: Path, argument: str = "", order: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", script, argument], env=environment, input=order, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[list[str]]]:
    """What a start with so many heads is told and what it launches."""
    return cache(lambda kv_heads: json.loads(run(START, tmp_path_factory.mktemp("start"), kv_heads)))


@pytest.mark.nightly
@pytest.mark.parametrize("kv_heads", ["4", "2"])
def test_a_start_and_its_first_requests_launch_what_was_told(
    start: Callable[[str], list[list[str]]], kv_heads: str
) -> None:
    told, launched = start(kv_heads)
    assert len(launched) > 10 and set(launched) == set(told)


@pytest.mark.nightly
@pytest.mark.parametrize("kv_heads", ["4", "2"])
def test_a_start_finds_all_of_its_kernels_compiled(
    start: Callable[[str], list[list[str]]], tmp_path: Path, kv_heads: str
) -> None:
    told, _ = start(kv_heads)
    names = {json.loads(kernel)["name"].rpartition(".")[2] for kernel in told}
    assert {"draw_kernel", "prefill_kernel", "combine_kernel", "one_row_kernel", "resolve_tokens_kernel"} <= names
    assert run(COMPILE, tmp_path, order=json.dumps(told)).split() == ["False"]
    launched, told_again = json.loads(run(LAUNCH, tmp_path, kv_heads))
    assert {name for name, _ in launched} == names
    assert all(is_found for _, is_found in launched)
    assert told_again == told
