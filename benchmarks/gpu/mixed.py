"""Steps of 64 decodes and one chunk of a prompt: how long they take, the host's part, and their products alone.

    python benchmarks/gpu/mixed.py [--shape llama3-8b] [--decodes 64] [--tokens 0,100] [--profile 600] [--kernels 600]

Every step has a new prompt of so many tokens beside the same decodes. One line of JSON for each number of tokens:
milliseconds of a step, of `submit`, and of the matrix products of as many rows, the middle of many. `--profile`: what
the host does in `submit` of such a step, by function. `--kernels`: one such step by torch's profiler: how long nothing
runs, and milliseconds of each kernel.
"""

import argparse
import cProfile
import json
import pstats
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from engine import DEVICE, DTYPE, SHAPES, GpuEngine
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from chairlift.core.engine import Engine
from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.plan import StepPlan
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.models.spec import ModelConfig

_CONTEXT = 600  # tokens of a decode's prompt
_STEP_TOKENS = 4096
_WARM, _TIMED = 8, 32  # steps


def request(number: int, num_in: int, num_out: int) -> Request:
    prompt = tuple((number * 7919 + place * 31) % 30000 + 16 for place in range(num_in))
    params = SamplingParams(temperature=0, max_tokens=num_out, ignore_eos=True)
    return Request(id=RequestId(number), prompt=prompt, params=params, max_output=num_out, seed=0)


def begun(gpu: GpuEngine, num_decodes: int) -> Engine:
    engine = gpu.engine(Fcfs(), [])
    for number in range(num_decodes):
        engine.add((request(number + 1, _CONTEXT, 2000),))
    for _ in range(20 + num_decodes * _CONTEXT // _STEP_TOKENS):
        engine.step()
    return engine


@contextmanager
def around_submit(gpu: GpuEngine, call: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """`call` gets each submit to make."""
    submit = gpu.runner.submit

    def submitted(plan: StepPlan) -> None:
        call(partial(submit, plan))

    gpu.runner.submit = submitted  # type: ignore[method-assign]
    try:
        yield
    finally:
        gpu.runner.submit = submit  # type: ignore[method-assign]


def mixed_steps(gpu: GpuEngine, num_decodes: int, num_tokens: int, call: Callable[[Callable[[], None]], None]) -> float:
    """The middle of the steps in milliseconds."""
    engine = begun(gpu, num_decodes)
    took = []
    with around_submit(gpu, call):
        for step in range(_WARM + _TIMED):
            if num_tokens:
                engine.add((request(1000 + step, num_tokens, 1),))
            began = time.perf_counter()
            engine.step()
            took.append(time.perf_counter() - began)
    torch.cuda.synchronize()
    for number in range(1, num_decodes + 1):
        engine.abort(RequestId(number))
    while engine.has_work:
        engine.step()
    return 1000 * statistics.median(took[_WARM:])


def products_ms(config: ModelConfig, num_rows: int) -> float:
    """All but the head's."""
    layer = config.layers[0]
    attention, inner = layer.attention, layer.feed_forward.width
    width, heads = config.hidden_size, attention.num_heads * attention.head_dim
    qkv = heads + 2 * attention.num_kv_heads * attention.head_dim
    shapes = [(qkv, width), (width, heads), (2 * inner, width), (width, inner)]
    weights = [[torch.randn(*shape, device=DEVICE, dtype=DTYPE) for shape in shapes] for _ in range(4)]
    rows = {k: torch.randn(num_rows, k, device=DEVICE, dtype=DTYPE) for _, k in shapes}

    def once() -> None:
        for index in range(len(config.layers)):
            for weight in weights[index % 4]:
                torch.nn.functional.linear(rows[weight.shape[1]], weight)

    once()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(3):
        once()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / 3 * 1000


def kernels(gpu: GpuEngine, num_decodes: int, num_tokens: int) -> list[tuple[str, float]]:
    """Name and milliseconds of one step that was captured before, the longest first; behind the step and its gaps."""
    run = partial(mixed_steps, gpu, num_decodes, num_tokens, lambda submit: submit())
    run()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
    events = profiled.profiler.kineto_results.events()
    spans = sorted(
        (event.start_ns(), event.start_ns() + event.duration_ns(), event.name()[:100])
        for event in events
        if event.device_type() == DeviceType.CUDA
    )
    firsts = [place for place, (_, _, name) in enumerate(spans) if "resolve_tokens" in name]
    # The last ones are those of an engine that has nothing more to do.
    middle = len(firsts) - _TIMED // 2
    step = spans[firsts[middle] : firsts[middle + 1]]
    length = spans[firsts[middle + 1]][0] - step[0][0]
    busy, end = 0, 0
    taken: defaultdict[str, int] = defaultdict(int)
    for begin, stop, name in step:
        busy += max(0, stop - max(begin, end))
        end = max(end, stop)
        taken[name] += stop - begin
    found = sorted(taken.items(), key=lambda each: -each[1])[:20]
    return [(name, ns / 1e6) for name, ns in (("the step", length), ("nothing runs", length - busy), *found)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="llama3-8b", choices=sorted(SHAPES))
    parser.add_argument("--decodes", type=int, default=64)
    parser.add_argument("--tokens", default="0,100,200,300,431,512,600,1000,2000,3000")
    parser.add_argument("--profile", type=int)
    parser.add_argument("--kernels", type=int)
    args = parser.parse_args()
    gpu = GpuEngine(SHAPES[args.shape], max_running=args.decodes + 192, max_step_tokens=_STEP_TOKENS)
    if args.profile is not None:
        profiler = cProfile.Profile()
        mixed_steps(gpu, args.decodes, args.profile, lambda submit: profiler.runcall(submit))
        pstats.Stats(profiler).sort_stats("tottime").print_stats(30)
        return
    if args.kernels is not None:
        for name, ms in kernels(gpu, args.decodes, args.kernels):
            print(f"{ms:8.3f} ms  {name}")
        return
    for num_tokens in map(int, args.tokens.split(",")):
        host: list[float] = []

        def timed(submit: Callable[[], None], host: list[float] = host) -> None:
            began = time.perf_counter()
            submit()
            host.append(time.perf_counter() - began)

        step = mixed_steps(gpu, args.decodes, num_tokens, timed)
        figures = {
            "step_ms": step,
            "submit_ms": 1000 * statistics.median(host[_WARM:]),
            "products_ms": products_ms(SHAPES[args.shape], args.decodes + num_tokens),
        }
        rounded = {name: round(value, 2) for name, value in figures.items()}
        print(json.dumps({"decodes": args.decodes, "tokens": num_tokens, **rounded}), flush=True)


if __name__ == "__main__":
    main()
