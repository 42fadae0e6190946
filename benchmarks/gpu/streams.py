"""Decoding for few streams: milliseconds a token, and against a single stream.

    python benchmarks/gpu/streams.py [--shape llama3-8b] [--streams 1,2,4,8,16,32,64] [--exact]

Prompts of 128 tokens; the middle of 128 steps, all of them captured. One line of JSON for each number of streams.
"""

import argparse
import json
import statistics
import time

import torch
from engine import SHAPES, GpuEngine

from chairlift.core.policies.fcfs import Fcfs
from chairlift.core.ports import Runner

_PROMPT = 128
_WARM, _TIMED = 24, 128  # steps


def step_ms(gpu: GpuEngine, num_streams: int, runner: Runner | None = None) -> float:
    engine = gpu.engine(Fcfs(), [(_PROMPT, _WARM + _TIMED + 16)] * num_streams, runner)
    took = []
    for _ in range(_WARM + _TIMED):
        began = time.perf_counter()
        engine.step()
        took.append(time.perf_counter() - began)
    while engine.has_work:
        engine.step()
    torch.cuda.synchronize()
    return 1000 * statistics.median(took[_WARM:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="llama3-8b", choices=sorted(SHAPES))
    parser.add_argument("--streams", default="1,2,4,8,16,32,64")
    parser.add_argument("--exact", action="store_true")
    args = parser.parse_args()
    gpu = GpuEngine(SHAPES[args.shape], max_running=256, max_step_tokens=4096, exact=args.exact)
    one = None
    for num_streams in map(int, args.streams.split(",")):
        took = step_ms(gpu, num_streams)
        one = one or took
        figures = {"shape": args.shape, "exact": args.exact, "streams": num_streams, "step_ms": round(took, 3)}
        print(json.dumps({**figures, "of_first": round(took / one, 3)}), flush=True)


if __name__ == "__main__":
    main()
