"""How long routing a request takes, among many replicas that hold many prefixes; needs no model.

    python benchmarks/host/routing.py [--replicas 1000] [--known 1000000] [--tokens 2200]

Prompts begin with one of a few system prompts, go on with a conversation that some replica holds, and end with a new
turn. `route` is all that a front end does before it sends a request, hashing included; `hash` is hashing alone. The
index is as large as `--known` hashes, each of a span of blocks.
"""

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from statistics import median, quantiles

from chairlift.config.options.rules import make_router
from chairlift.core.packed import packed
from chairlift.core.routing.prefixes import SPAN_TOKENS, span_hashes
from chairlift.core.routing.routing import Routing
from chairlift.core.routing.rules import ROUTERS

_NUM_SYSTEM, _NUM_NEW = 512, 100  # tokens
_NUM_ROUTED = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--known", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=int, default=2200)
    options = parser.parse_args()
    rng = random.Random(0)
    prompts = _prompts(rng, options.tokens)
    print(
        f"{options.replicas} replicas, {options.known} known hashes, prompts of {options.tokens} tokens; microseconds"
    )
    print(f"{'':14}{'median':>8}{'p99':>8}")
    _show("hash", [_timed(partial(_hashes, prompt)) for prompt in prompts])
    for name in ROUTERS:
        routing = _routing(name, prompts, options.replicas, options.known)
        _show(name, [_timed(partial(routing.route, prompt, "", "user", routing.replicas.open)) for prompt in prompts])


def _prompts(rng: random.Random, num_tokens: int) -> list[list[int]]:
    systems = [[rng.randrange(32_000) for _ in range(_NUM_SYSTEM)] for _ in range(4)]
    more = num_tokens - _NUM_SYSTEM
    return [[*rng.choice(systems), *(rng.randrange(32_000) for _ in range(more))] for _ in range(_NUM_ROUTED)]


def _hashes(prompt: list[int]) -> list[bytes]:
    return span_hashes(packed(prompt), SPAN_TOKENS, "")


def _routing(name: str, prompts: list[list[int]], count: int, num_known: int) -> Routing:
    rng = random.Random(1)
    routing = Routing(make_router(name), count, SPAN_TOKENS)
    known = routing.replicas.prefixes
    for replica in range(count):
        routing.begin(replica)
        routing.tell(replica, rng.randrange(4000), rng.randrange(64), 0)
    for prompt in prompts:
        known.publish(rng.randrange(count), _hashes(prompt[:-_NUM_NEW]))
    while known.num_known < num_known:
        known.publish(rng.randrange(count), [rng.randbytes(8) for _ in range(50)])
    return routing


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - begun)


def _show(name: str, times: list[float]) -> None:
    print(f"{name:14}{median(times):8.1f}{quantiles(times, n=100)[-1]:8.1f}")


if __name__ == "__main__":
    main()
