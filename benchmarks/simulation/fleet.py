"""A thousand replicas for ten minutes, simulated on one core: processor time and memory, and what the fleet does.

    python benchmarks/simulation/fleet.py [--replicas 1000] [--minutes 10] [--rate 3.0] [--router prefix]

Each replica gets `rate` requests a second on average, Poisson. Requests are chats: a system prompt of one of 200 kinds,
then a text of their own; answers are of 50 to 750 tokens. Prompts are drawn from 256 token ids, as ids do not change how
long a step takes. The profile is h200-llama2-7b with the keys and values of a model of 8B parameters with grouped
heads: a quarter of the bytes.
"""

import argparse
import json
import random
import resource
import time
from collections.abc import Iterator
from dataclasses import replace

from chairlift.config.settings import Settings
from chairlift.sim.profile import load_profile
from chairlift.sim.run import run
from chairlift.workload.arrivals import parse_arrivals
from chairlift.workload.item import Item

KINDS, BLOCK = 200, 512
GROUPS = 4  # query heads that share a head of keys and values


def chats(count: int, seed: int) -> Iterator[Item]:
    rng = random.Random(seed)
    for i in range(count):
        kind = rng.randrange(KINDS)
        hashes = (kind, *(-(4 * i + j) for j in range(rng.randint(1, 3))))
        length = BLOCK * (len(hashes) - 1) + rng.randint(1, BLOCK)
        yield Item(prompt_tokens=length, output_tokens=rng.randint(50, 750), hash_ids=hashes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=3.0, help="requests a second for each replica")
    parser.add_argument("--router", default="prefix")
    parser.add_argument("--block-size", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    profile = load_profile("h200-llama2-7b")
    cost = replace(profile.cost, kv_token_s=profile.cost.kv_token_s / GROUPS)
    profile = replace(profile, vocab_size=256, kv_token_bytes=profile.kv_token_bytes // GROUPS, cost=cost)
    rate = args.rate * args.replicas
    count = round(rate * 60.0 * args.minutes)
    settings = Settings(replicas=args.replicas, router=args.router, block_size=args.block_size)
    started = time.process_time()
    report = run(settings, profile, chats(count, 0), parse_arrivals(f"poisson:rate={rate}"))
    seconds = time.process_time() - started
    if args.json:
        print(json.dumps(report.to_json()))
    else:
        print(report.to_text())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{seconds:.0f} s of processor, {1e6 * seconds / count:.0f} us a request, {peak:.1f} GiB")


if __name__ == "__main__":
    main()
