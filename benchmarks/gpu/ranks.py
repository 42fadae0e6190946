"""What the path of several ranks costs one: milliseconds a step, plain and as the first rank of one, in turns.

    python benchmarks/gpu/ranks.py [--shape llama3-8b] [--streams 1,16,64] [--repeats 2]

The rank encodes each step's order and writes it to a process that reads and forgets it, and has nobody to sum with.
One line of JSON for each number of streams.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from engine import DEVICE, SHAPES, STREAM, GpuEngine, step_ms

from chairlift.core.policies.rankings import Fcfs
from chairlift.models.shards import Rank
from chairlift.runner.cuda.runner import CudaRunner
from chairlift.runner.ranks.group import Group
from chairlift.runner.ranks.orders import Orders
from chairlift.runner.ranks.spread import spread


def forget(pipe: Connection) -> None:
    while True:
        pipe.recv_bytes()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="llama3-8b", choices=sorted(SHAPES))
    parser.add_argument("--streams", default="1,16,64")
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    context = multiprocessing.get_context("fork")  # before CUDA is begun
    ours, theirs = context.Pipe()
    context.Process(target=forget, args=(theirs,), daemon=True).start()
    config = SHAPES[args.shape]
    gpu = GpuEngine(config, max_running=256, max_step_tokens=4096)
    with tempfile.TemporaryDirectory() as folder:
        group = Group(Path(folder) / "store", Rank(0, 1), DEVICE, "nccl", exact=False)
        model = spread(gpu.model, config, group)
        ranked = CudaRunner(model, gpu.kv, DEVICE, gpu.limits, orders=Orders([ours]))
        for num_streams in map(int, args.streams.split(",")):
            plain, rank = [], []
            for _ in range(args.repeats):
                for times, runner in ((plain, gpu.runner), (rank, ranked)):
                    times.append(step_ms(gpu.engine(Fcfs(), [STREAM] * num_streams, runner)))
            figures = {"plain_ms": round(statistics.median(plain), 3), "rank_ms": round(statistics.median(rank), 3)}
            ratio = round(statistics.median(rank) / statistics.median(plain), 4)
            print(json.dumps({"shape": args.shape, "streams": num_streams, **figures, "ratio": ratio}), flush=True)


if __name__ == "__main__":
    main()
