"""Decoding for few streams: milliseconds a token, and against a single stream.

    python benchmarks/gpu/streams.py [--shape llama3-8b] [--streams 1,2,4,8,16,32,64] [--exact]

Prompts of 128 tokens; the middle of 128 steps, all of them captured. One line of JSON for each number of streams.
"""

import argparse
import json

from engine import SHAPES, STREAM, GpuEngine, step_ms

from chairlift.core.policies.rankings import Fcfs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="llama3-8b", choices=sorted(SHAPES))
    parser.add_argument("--streams", default="1,2,4,8,16,32,64")
    parser.add_argument("--exact", action="store_true")
    args = parser.parse_args()
    gpu = GpuEngine(SHAPES[args.shape], max_running=256, max_step_tokens=4096, exact=args.exact)
    one = None
    for num_streams in map(int, args.streams.split(",")):
        took = step_ms(gpu.engine(Fcfs(), [STREAM] * num_streams))
        one = one or took
        figures = {"shape": args.shape, "exact": args.exact, "streams": num_streams, "step_ms": round(took, 3)}
        print(json.dumps({**figures, "of_first": round(took / one, 3)}), flush=True)


if __name__ == "__main__":
    main()
