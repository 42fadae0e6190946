"""A thousand replicas for ten minutes, simulated on one core: processor time and memory, and what the fleet does.

    python benchmarks/simulation/fleet.py [--replicas 1000] [--minutes 10] [--rate 1.5] [--router prefix] [--stepped]

Each replica gets `rate` requests a second on average, Poisson. A prompt is a document of 4,096 tokens, one of 2,000,
and 1,000 to 7,000 tokens of its own; answers are of 100 to 900 tokens. Prompts are drawn from 256 token ids: ids do not
change how long a step takes. The profile is h200-llama2-7b with the keys and values of a model of 8B parameters with
grouped heads: a quarter of the bytes. `--stepped` makes every step by itself, for comparison.
"""

import argparse
import random
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

from chairlift.config.options.rules import make_router
from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.ids import RequestId
from chairlift.core.params import SamplingParams
from chairlift.core.request import Request
from chairlift.lab.sim.fleet.run import ReplicaRun
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.setup import rules_of

DOCUMENTS, DOCUMENT, OWN, OUTPUT = 2_000, 4_096, (1_000, 7_000), (100, 900)
GROUPS = 4  # query heads that share a head of keys and values


@cache
def greedy(num_output: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True)


def arriving(count: int, rate: float) -> Iterator[tuple[float, Request]]:
    rng, now = random.Random(0), 0.0
    documents = [rng.randbytes(DOCUMENT) for _ in range(DOCUMENTS)]
    for i in range(count):
        prompt = tuple(rng.choice(documents) + rng.randbytes(rng.randint(*OWN)))
        num_output = rng.randint(*OUTPUT)
        params = greedy(num_output)
        yield now, Request(id=RequestId(i + 1), prompt=prompt, params=params, max_output=num_output, seed=i)
        now += rng.expovariate(rate)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=1.5, help="requests a second for each replica")
    parser.add_argument("--router", default="prefix")
    parser.add_argument("--block-size", type=int, default=256)
    parser.add_argument("--stepped", action="store_true")
    args = parser.parse_args()
    profile = load_profile("h200-llama2-7b")
    cost = replace(profile.cost, kv_token_s=profile.cost.kv_token_s / GROUPS)
    profile = replace(profile, kv_token_bytes=profile.kv_token_bytes // GROUPS, cost=cost, max_model_len=16_384)
    settings = Settings(router=args.router, block_size=args.block_size)
    limits = profile.limits(settings)
    make = partial(make_scheduler, limits, rules_of(settings, profile, limits))
    rate = args.rate * args.replicas
    count = round(rate * 60.0 * args.minutes)
    started = time.process_time()
    fleet = ReplicaRun(make, args.replicas, make_router(args.router), cost, profile.depth, skips=not args.stepped)
    fleet.run(arriving(count, rate))
    seconds = time.process_time() - started
    print(fleet.timeline.report(replica_s=fleet.replica_s).to_text())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{seconds:.0f} s of processor, {1e6 * seconds / count:.0f} us a request, {peak:.1f} GiB")


if __name__ == "__main__":
    main()
