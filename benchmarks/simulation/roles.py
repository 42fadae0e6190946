"""Is a split into prefill and decode replicas worth it? Eight replicas with 0, 2 and 4 for prompts, simulated.

    python benchmarks/simulation/roles.py [--count 2000] [--rates 8,16] [--links 1,10,50] [--workload FILE]

The workload is drawn in the manner of the Mooncake conversation trace: long prompts, of which two in five go on with
what an earlier one said. The profile is h200-llama2-7b with the keys and values of a model with grouped heads, a
quarter of the bytes, and a longer context. `--links`: GB/s at which keys and values are copied at the source and
fetched at the target. `--workload` writes the requests to a file, for `chairlift simulate` and `compare`.
"""

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from chairlift.config.settings import Settings
from chairlift.lab.sim.profile import Profile, load_profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.item import HASH_BLOCK, Item
from chairlift.telemetry.report import Spread

REPLICAS, GROUPS, LONGEST = 8, 4, 65_536
GOES_ON = 0.4  # requests that begin with an earlier prompt


def drawn(num: int) -> Iterator[Item]:
    rng, ids, said = random.Random(0), count(), list[tuple[int, ...]]()
    for _ in range(num):
        before = rng.choice(said[-500:]) if said and rng.random() < GOES_ON else ()
        num_new = max(1, round(rng.lognormvariate(8.6, 1.0) / HASH_BLOCK))
        known = (*before, *(next(ids) for _ in range(num_new)))[: LONGEST // HASH_BLOCK - 5]
        said.append(known)
        num_output = min(2_000, max(2, round(rng.lognormvariate(5.5, 0.8))))
        yield Item(prompt_tokens=HASH_BLOCK * len(known), output_tokens=num_output, hash_ids=known)


def profile_of(gb_per_s: float) -> Profile:
    found = load_profile("h200-llama2-7b")
    cost = replace(found.cost, kv_token_s=found.cost.kv_token_s / GROUPS, swap_token_s=found.cost.swap_token_s / GROUPS)
    rate, kv_token_bytes = 1e9 * gb_per_s, found.kv_token_bytes // GROUPS
    return replace(
        found, cost=cost, kv_token_bytes=kv_token_bytes, max_model_len=LONGEST, copied_per_s=rate, fetched_per_s=rate
    )


def ms(spread: Spread) -> str:
    return f"{1e3 * spread.p50:9.1f} {1e3 * spread.p99:9.1f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--rates", default="8,16", help="requests a second, of all replicas")
    parser.add_argument("--links", default="1,10,50", help="GB/s")
    parser.add_argument("--splits", default="0,2,4", help="prefill replicas")
    parser.add_argument("--options", default="{}", help="settings, as a JSON object")
    parser.add_argument("--workload", type=Path)
    args = parser.parse_args()
    items = list(drawn(args.count))
    if args.workload is not None:
        fields = ("prompt_tokens", "output_tokens", "hash_ids")
        lines = [json.dumps({name: getattr(item, name) for name in fields}) + "\n" for item in items]
        args.workload.write_text("".join(lines))
    mean = sum(item.prompt_tokens for item in items) / len(items)
    print(f"{len(items)} requests, prompts of {mean:.0f} tokens on average")
    print("req/s  prefill  GB/s   ttft p50       p99   tpot p50       p99    e2e p50       p99  moved   with KV")
    for rate in args.rates.split(","):
        for num_prefill in map(int, args.splits.split(",")):
            for link in map(float, args.links.split(",")):
                roles = f"prefill:{num_prefill},decode:{REPLICAS - num_prefill}" if num_prefill else None
                settings = Settings(replicas=REPLICAS, roles=roles, block_size=64, **json.loads(args.options))
                report = run(settings, profile_of(link), items, parse_arrivals(f"poisson:rate={rate}"))
                times = " ".join(ms(spread) for spread in (report.ttft_s, report.tpot_s, report.e2e_s))
                shown = f"{link:5g}" if num_prefill else "     "
                moves = f"{report.moves:5}  {report.kv_moves:8}"
                print(f"{rate:>5}  {num_prefill:7}  {shown}  {times}  {moves}", flush=True)
                if not num_prefill:
                    break


if __name__ == "__main__":
    main()
