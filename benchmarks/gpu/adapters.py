"""Adapters on a GPU: how much slower steps are with them, and how long loading one takes.

    python benchmarks/gpu/adapters.py [--shape llama2-7b] [--rank 16] [--max-rank 64] [--adapters 1,8,64]

Random adapters of all linear layers. For one stream, 8 and 64: the middle of 128 captured steps without adapters (in a
runner that has none, and in one that has), with one, and with more adapters, streams taking turns. Then loads; the
kernels by themselves, beside what reading their adapters takes at 4 TB/s; and a mix of 256 requests over each number of
adapters, against the base. One line of JSON each.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import triton
from engine import DEVICE, DTYPE, SHAPES, STREAM, GpuEngine, step_ms
from torch import Tensor

from chairlift.core.attributes import Attributes
from chairlift.core.engine import Engine
from chairlift.core.ids import RequestId
from chairlift.core.limits import Limits
from chairlift.core.params import SamplingParams
from chairlift.core.plan import AdapterSlot
from chairlift.core.policies.rankings import Fcfs
from chairlift.core.request import Request
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.live.clock import WallClock
from chairlift.models.spec import ModelConfig
from chairlift.runner.adapters.store import AdapterStore
from chairlift.runner.cuda.adapters.layout import RANKS, num_blocks, slot_layout
from chairlift.runner.cuda.adapters.pieces import Placed, SlotAdapter, packed
from chairlift.runner.cuda.adapters.slots import CudaSlots
from chairlift.runner.cuda.runner import CudaRunner

_MIX = 256  # requests
_LAYERS = 8  # whose kernels are timed in turn


def random_store(config: ModelConfig, rank: int, max_rank: int, count: int) -> AdapterStore[SlotAdapter]:
    """All have the same numbers, in tensors of float32 as files have them."""
    layout, wide, tensors = slot_layout(config), num_blocks(rank) * RANKS, []
    for place in layout.matrices.values():
        first = place.up
        for index, height in enumerate(place.heights):
            down = (place.down + index * place.width) * wide
            tensors.append(Placed(0.01 * torch.randn(rank, place.width), down, place.width))
            tensors.append(Placed(0.01 * torch.randn(height, rank), first * wide, wide, 2.0))
            first += height
    made = packed(tensors, num_blocks(rank), layout.num_units * wide)
    store: AdapterStore[SlotAdapter] = AdapterStore(lambda _: made, 1 << 50, max_rank)
    for number in range(1, count + 1):
        store.read(number, str(Path(str(number))))
    return store


def make_engine(limits: Limits, runner: CudaRunner, lengths: list[tuple[int, int]], num_adapters: int) -> Engine:
    engine = Engine(Scheduler(limits, Fcfs(), has_prefix_index=False), runner, WallClock())
    for index, (num_in, num_out) in enumerate(lengths):
        params = SamplingParams(max_tokens=num_out, temperature=0.0, ignore_eos=True)
        adapter = 1 + index % num_adapters if num_adapters else 0
        prompt = tuple((17 * index + 31 * place) % limits.vocab_size for place in range(num_in))
        request = Request(
            id=RequestId(index), prompt=prompt, params=params, max_output=num_out, seed=0,
            attributes=Attributes(adapter=adapter),
        )  # fmt: skip
        engine.add((request,))
    return engine


def stream_ms(limits: Limits, runner: CudaRunner, num_streams: int, num_adapters: int) -> float:
    return step_ms(make_engine(limits, runner, [STREAM] * num_streams, num_adapters))


def mix_s(limits: Limits, runner: CudaRunner, num_adapters: int) -> float:
    """The second of two runs, all steps of which were captured by the first."""
    lengths = [(64 + 37 * i % 448, 32 + 29 * i % 224) for i in range(_MIX)]
    took = 0.0
    for _ in range(2):
        engine = make_engine(limits, runner, lengths, num_adapters)
        torch.cuda.synchronize()
        began = time.perf_counter()
        while engine.has_work:
            engine.step()
        took = time.perf_counter() - began
    return took


def time_kernels(slots: CudaSlots, config: ModelConfig, rank: int, counts: list[int]) -> None:
    """Microseconds of a matrix, over several layers, whose adapters no cache holds together."""
    slots.load([AdapterSlot(1 + slot, slot) for slot in range(max(counts))])
    # Waits for all of them: a copy beside it would break a capture.
    slots.send(np.arange(max(counts), dtype=np.int32), max(counts), None, 0)
    for num_rows in (1, 8, 64, 512):
        for count in (count for count in counts if count <= num_rows):
            slots.send(np.arange(num_rows, dtype=np.int32) % count, num_rows, None, 0)
            for role in ("qkv", "output", "gate_up", "down"):
                place = slot_layout(config).matrices[0, role]
                x = torch.randn(num_rows, place.width, device=DEVICE, dtype=DTYPE)
                out = torch.zeros(num_rows, sum(place.heights), device=DEVICE, dtype=DTYPE)

                def low(role: str = role, x: Tensor = x) -> None:
                    for layer in range(_LAYERS):
                        slots.multiply_low((layer, role), False, x)

                def both(role: str = role, x: Tensor = x, out: Tensor = out) -> None:
                    for layer in range(_LAYERS):
                        slots.add((layer, role), False, x, out)

                low_us, both_us = captured_us(low) / _LAYERS, captured_us(both) / _LAYERS
                read = (
                    2 * count * num_blocks(rank) * RANKS * (len(place.heights) * place.width + sum(place.heights)) / 4e6
                )
                say(
                    rows=num_rows, adapters=count, matrix=role, low_us=round(low_us, 1),
                    up_us=round(both_us - low_us, 1), read_us=round(read, 1),
                )  # fmt: skip


def captured_us(run: Callable[[], None]) -> float:
    return 1000 * triton.testing.do_bench_cudagraph(run, rep=20)


def say(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="llama2-7b", choices=sorted(SHAPES))
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--max-rank", type=int, default=64)
    parser.add_argument("--adapters", default="1,8,64")
    args = parser.parse_args()
    counts = [int(count) for count in args.adapters.split(",")]
    config = SHAPES[args.shape]
    gpu = GpuEngine(config, max_running=256, max_step_tokens=4096)
    limits = replace(gpu.limits, num_adapter_slots=max(counts))
    store = random_store(config, args.rank, args.max_rank, max(counts))
    plain = {streams: stream_ms(gpu.limits, gpu.runner, streams, 0) for streams in (1, 8, 64)}
    base_s = mix_s(gpu.limits, gpu.runner, 0)
    runner = CudaRunner(gpu.model, gpu.kv, DEVICE, limits, adapters=store)
    for streams, before in plain.items():
        say(streams=streams, adapters="no runner for them", step_ms=round(before, 3))
        for count in (0, *(count for count in counts if count <= streams)):
            found = stream_ms(limits, runner, streams, count)
            say(streams=streams, adapters=count, step_ms=round(found, 3), slower=f"{found / before - 1:.1%}")
    slots = CudaSlots(store, config, DTYPE, DEVICE, max(counts), 4096)
    torch.cuda.synchronize()
    began = time.perf_counter()
    slots.load([AdapterSlot(1, 0)])
    launched = time.perf_counter()
    slots.send(np.zeros(1, np.int32), 1, None, 0)  # waits for it
    torch.cuda.synchronize()
    say(load_ms=round(1000 * (time.perf_counter() - began), 2), of_the_host_ms=round(1000 * (launched - began), 2))
    time_kernels(slots, config, args.rank, counts)
    for count in (0, *counts):
        found = mix_s(limits, runner, count)
        say(mix=_MIX, adapters=count, s=round(found, 2), slower=f"{found / base_s - 1:.1%}")


if __name__ == "__main__":
    main()
