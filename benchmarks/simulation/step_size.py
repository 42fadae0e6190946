"""Fixed step sizes against the rule `timed`, simulated: Llama-3-8B's shape on an H200.

    python benchmarks/simulation/step_size.py --azure FILE --mooncake FILE

The profile is made by hand from matrix products and steps that were timed there (64 decodes and a prompt chunk, in
captured graphs): keys and values are read at 4 TB/s, prompts attend at 500 TFLOP/s. Traces as recorded, scaled to about
60 and 90 % of what is served when all come at once. Prompts of 2,000 to 4,000 tokens with answers of 10 to 30, all at
once, show the cost in throughput.
"""

import argparse
import random
from pathlib import Path

from chairlift.config.settings import Settings
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item
from chairlift.telemetry.report import Report, Spread

# Milliseconds of all matrix products by rows; the rest of a step takes 0.4 and 0.002 for each row.
PRODUCTS_MS = (
    (1, 3.4), (16, 3.9), (64, 4.19), (164, 5.07), (264, 6.4), (364, 8.3), (495, 11.0), (664, 15.4), (841, 20.0),
    (1064, 23.0), (3064, 65.1), (8192, 174.0),
)  # fmt: skip
KV_TOKEN_BYTES, LAYERS, HEADS, HEAD_DIM = 131_072, 32, 32, 128
PROFILE = Profile(
    name="h200-llama3-8b-by-hand",
    model="Llama-3-8B",
    device="NVIDIA H200",
    dtype="bfloat16",
    vocab_size=128_256,
    max_model_len=16_384,
    max_running=512,
    max_step_tokens=4096,
    kv_token_bytes=KV_TOKEN_BYTES,
    kv_memory=800_000 * KV_TOKEN_BYTES,
    depth=2,
    cost=CostModel(
        linear=tuple((rows, 1e-3 * (ms + 0.4 + 0.002 * rows)) for rows, ms in PRODUCTS_MS),
        kv_token_s=KV_TOKEN_BYTES / 4e12,
        pair_s=4 * HEADS * HEAD_DIM * LAYERS / 500e12,
    ),
)
RULES = [(size, "mixed") for size in (512, 1024, 2048, 4096, 8192)] + [(4096, "timed"), (8192, "timed")]


def at_rate(items: list[Item], rate: float) -> str:
    return f"trace:scale={(len(items) - 1) / ((items[-1].arrival_s - items[0].arrival_s) * rate):.6f}"


def show(name: str, items: list[Item], arrivals: str) -> None:
    for size, rule in RULES:
        report: Report = run(Settings(max_step_tokens=size, prefill=rule), PROFILE, items, parse_arrivals(arrivals))
        ttft, tpot = _ms(report.ttft_s), _ms(report.tpot_s)
        print(f"| {name} | {size} {rule} | {ttft} | {tpot} | {report.total_s:.1f} s |", flush=True)


def _ms(spread: Spread) -> str:
    return " / ".join(f"{1e3 * value:.1f}" for value in (spread.p50, spread.p90, spread.p99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--azure", type=Path, required=True)
    parser.add_argument("--mooncake", type=Path, required=True)
    args = parser.parse_args()
    azure, mooncake = list(read(args.azure, 1000, 1.0, 16_000)), list(read(args.mooncake, 400, 1.0, 15_000))
    rng = random.Random(1)
    code = [Item(prompt_tokens=rng.randint(2000, 4000), output_tokens=rng.randint(10, 30)) for _ in range(400)]
    print("| work | step | TTFT p50 / p90 / p99, ms | TPOT, ms | total |\n|---|---|---|---|---|")
    for name, items, rates in (("azure-conv", azure, (14.5, 22.0)), ("mooncake-conv", mooncake, (2.6, 3.9))):
        for rate in rates:
            show(f"{name}, {rate}/s", items, at_rate(items, rate))
    show("long prompts, short answers", code, "none")


if __name__ == "__main__":
    main()
