"""How long an adapter takes from its file to the pieces that go to a GPU, part by part; needs no GPU.

    python benchmarks/cpu/adapter_read.py --model DIR [--rank 16] [--rounds 5]

The model needs no weights. The file is random numbers in float32, and in the page cache. `read`: whole, into memory
that was never touched; `put`: into buffers as large as those that a GPU fetches, by one thread (loads have four).
"""

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from machine import describe
from make_adapter import config_of, write_adapter

from chairlift.models.adapters.adapter import read_adapter
from chairlift.runner.adapters.store import StoredAdapter
from chairlift.runner.cuda.adapters.pieces import make_slot_adapter
from chairlift.runner.weights.transfer import PIECE

PARTS = ("checked", "read", "read and packed", "put")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the parts of reading an adapter.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    config = config_of(args.model)
    buffer, kept = torch.zeros(PIECE, dtype=torch.uint8), []
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "adapter"
        num_bytes = write_adapter(folder, config, args.rank)
        print(f"{', '.join(describe().values())}; {num_bytes / 1e6:.0f} MB, rank {args.rank}; ms")
        print("| " + " | ".join(PARTS) + " |\n|" + "---|" * len(PARTS))
        for _ in range(args.rounds):
            marks = [time.perf_counter()]
            spec = read_adapter(folder, config, args.rank)
            marks.append(time.perf_counter())
            kept.append(StoredAdapter(spec))
            marks.append(time.perf_counter())
            adapter = make_slot_adapter(spec, config)
            marks.append(time.perf_counter())
            for piece in adapter.pieces:
                piece.fill(buffer.numpy())
            marks.append(time.perf_counter())
            kept.append(adapter)
            times = [1000 * (later - earlier) for earlier, later in pairwise(marks)]
            print("| " + " | ".join(f"{each:.1f}" for each in times) + " |", flush=True)


if __name__ == "__main__":
    main()
