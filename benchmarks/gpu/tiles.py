"""A gated delta net's kernels on a GPU: microseconds of a layer for prompts and decodes, and the error of its outputs.

    python benchmarks/gpu/tiles.py [--shape 27b|35b]

Of some ways to cut the work of the kernels; beside them what the
memory takes to read the states.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.plan import Chunk
from chairlift.core.request import Request
from chairlift.models.mixers.delta_net import DeltaNetSpec
from chairlift.runner.cuda.recurrent import delta_net as kernels
from chairlift.runner.cuda.step.states import States, state_words
from chairlift.runner.mixers.delta_net import DeltaNet
from chairlift.runner.mixers.tiles import Memory, Tiles
from chairlift.runner.ops import Norm

C = 16  # tokens of a tile
MEMORY_TB_S = 4.2
DEVICE, DTYPE = torch.device("cuda"), torch.bfloat16
# By shape: the layer, its page in each of two tensors, recurrent layers.
SHAPES = {
    "27b": (DeltaNetSpec(num_key_heads=16, num_heads=48, key_dim=128, value_dim=128, num_taps=4), (4, C, 256), 48),
    "35b": (DeltaNetSpec(num_key_heads=16, num_heads=32, key_dim=128, value_dim=128, num_taps=4), (2, C, 256), 30),
}
REQUEST = Request(id=RequestId(1), prompt=(1,), params=SamplingParams(), max_output=1, seed=0)
# Values and warps of the walk, warps of the tiles; keys of a piece, warps and registers where states are streamed.
VARIANTS = ((64, 4, 1, 64, 4, 128), (64, 4, 2, 64, 4, None), (64, 4, 1, 64, 2, 128), (64, 4, 1, 64, 2, None))


@dataclass
class Work:
    """So many chunks of so many tokens each, from such a position on."""

    spec: DeltaNetSpec
    page: tuple[int, int, int]
    num_chunks: int
    count: int
    start: int

    def __post_init__(self) -> None:
        spec, page = self.spec, 2 * int(np.prod(self.page)) * DTYPE.itemsize
        self.num_tile = -(-C * spec.fixed.row * DTYPE.itemsize // page)
        self.num_state = -(-(spec.fixed.wide * 4 + spec.fixed.narrow * DTYPE.itemsize) // page)
        width = 2 * (self.num_tile + self.num_state)
        order = torch.randperm(self.num_chunks * width, device=DEVICE).int()
        self.tables = order.view(self.num_chunks, width)
        memory = torch.randn(2, len(order), page // 8, device=DEVICE) * 0.1
        self.state = tuple(each.view(DTYPE).view(-1, *self.page) for each in memory)
        num_tokens = self.num_chunks * self.count
        self.inputs = torch.randn(num_tokens, spec.num_channels + spec.num_outputs, device=DEVICE).to(DTYPE)
        self.rates = torch.randn(num_tokens, 2 * spec.num_heads, device=DEVICE).to(DTYPE)
        starts = [self.start + index % C for index in range(self.num_chunks)] if self.count == 1 else [0]
        starts = starts if self.count == 1 else starts * self.num_chunks
        chunks = [Chunk(REQUEST, start, self.count, (), 0, ((),), 0, ()) for index, start in enumerate(starts)]
        counts = np.full(self.num_chunks, self.count, np.int32)
        words = state_words(chunks, counts, np.repeat(np.arange(self.num_chunks, dtype=np.int32), counts), (), C)
        spans, units = (torch.from_numpy(each).to(DEVICE) for each in words[:2])
        writes = torch.zeros(1, 1 + self.num_state, dtype=torch.int32, device=DEVICE)
        self.states = States(spans, units, writes, 0, self.num_tile, self.num_state, self.count == 1)
        self.mixer = mixer(spec, torch.float32)

    def run(self) -> Tensor:
        return kernels.delta_net(self.inputs, self.rates, self.mixer, self.state, self.tables, self.states)

    def error(self) -> float:
        """Of the first chunk's outputs, relative."""
        spec, exact = self.spec, mixer(self.spec, torch.float64)
        inputs, rates = self.inputs[: self.count].double(), self.rates[: self.count].double()
        channels, gates = inputs.split((spec.num_channels, spec.num_outputs), dim=1)
        memory = Memory(inputs.new_zeros(spec.fixed.wide), inputs.new_zeros(spec.fixed.narrow))
        tiles = []
        for rows in torch.cat((channels, rates), dim=1).split(C):
            out, memory = exact._tile(rows, memory)
            tiles.append(out)
        heads = torch.cat(tiles).view(-1, spec.value_dim)
        heads = heads * torch.rsqrt((heads * heads).mean(dim=1, keepdim=True) + 1e-6)
        expected = heads.view(len(gates), -1) * gates * torch.sigmoid(gates)
        return float((self.run()[: self.count].double() - expected).norm() / expected.norm())


def mixer(spec: DeltaNetSpec, wide: torch.dtype) -> DeltaNet:
    generator = torch.Generator().manual_seed(1)
    taps = 0.5 * torch.randn(spec.num_taps, spec.num_channels, generator=generator)
    decay, bias = -torch.logspace(-1.3, 0.9, spec.num_heads), torch.linspace(-3, -1, spec.num_heads)
    taps, decay, bias, gain = (each.to(DEVICE, wide) for each in (taps, decay, bias, torch.ones(spec.value_dim)))
    return DeltaNet(spec, taps, decay, bias, Norm(gain, 1e-6), Tiles(spec.fixed, spec.num_outputs, wide))


def micros(work: Callable[[], object], repeats: int = 20) -> float:
    """Of one call, from a graph; the median of some."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            work()
    graph.replay()
    times = []
    for _ in range(7):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        graph.replay()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) * 1e3 / repeats)
    return statistics.median(times)


def by_kernel(work: Work) -> str:
    """Microseconds of each kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            work.run()
        torch.cuda.synchronize()
    times = {each.key: each.device_time_total / 5 for each in profile.key_averages() if each.key.endswith("_kernel")}
    return ", ".join(f"{name} {took:.1f}" for name, took in times.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="27b")
    shape = parser.parse_args().shape
    spec, page, num_layers = SHAPES[shape]
    began = time.perf_counter()
    cases = {
        "a prompt of 4,096": (1, 4096, 0), "8 prompts of 512": (8, 512, 0), "1 decode": (1, 1, 23),
        "8 decodes": (8, 1, 16), "64 decodes": (64, 1, 16),
    }  # fmt: skip
    print(f"{shape}: microseconds of one of {num_layers} layers; states alone, at {MEMORY_TB_S} TB/s, in brackets")
    works = {name: Work(spec, page, *case) for name, case in cases.items()}
    for variant in VARIANTS:
        kernels._SLICE, kernels._WARPS, kernels._TILE_WARPS, kernels._PIECE, kernels._STREAM_WARPS = variant[:5]
        kernels._STREAM_REGISTERS = variant[5]
        values, warps, tile_warps, piece, stream_warps, registers = variant
        print(
            f"walk: {values} values, {warps} warps; tiles: {tile_warps} warps; stream: {piece} keys, "
            f"{stream_warps} warps, {registers or 'any'} registers: error {works['8 prompts of 512'].error():.1e}",
            flush=True,
        )
        for name, work in works.items():
            took = micros(work.run)
            floor = work.num_chunks * spec.fixed.wide * 4 / MEMORY_TB_S / 1e6
            line = f"  {name}: {took:.1f} ({floor:.1f}), {took * num_layers / 1e3:.2f} ms of all layers"
            print(f"{line}; {by_kernel(work)}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
