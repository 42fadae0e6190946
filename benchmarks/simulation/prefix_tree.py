"""Routing by what replicas tell against routing by a tree of what was sent to them, on a trace with prefixes.

    python benchmarks/simulation/prefix_tree.py mooncake-conv.jsonl [--replicas 8] [--scale 1.0] [--limit N]

The tree is that of SGLang's router, written anew from its description: the router remembers what it sent where.
While loads are balanced, a request goes to the replica with the longest match, if that is more than `match` of the
prompt, else to the replica with the smallest tree; where the largest and the smallest number of open requests differ by
more than `apart` and by more than `times`, to the one with the fewest. Here a node is a span of 256 tokens, and a
replica's tree holds as many tokens as its cache and forgets the oldest.
"""

import argparse
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from pathlib import Path

from chairlift.config.options.rules import make_router
from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.routing.replicas import Replicas, members
from chairlift.core.routing.router import Asked, Router
from chairlift.lab.sim.fleet.run import ReplicaRun
from chairlift.lab.sim.profile import load_profile
from chairlift.lab.sim.setup import rules_of
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.lab.workload.requests import requests_of


class PrefixTree(Router):
    needs_hashes = True

    def __init__(self, num_tokens: int, match: float = 0.5, apart: int = 32, times: float = 1.0001) -> None:
        self._num_tokens = num_tokens
        self._match, self._apart, self._times = match, apart, times
        self._trees: dict[int, OrderedDict[bytes, None]] = {}  # spans by replica, the oldest first
        self.num_open: list[int] = []  # requests by replica

    def choose(self, asked: Asked, among: int, replicas: Replicas) -> int:
        chosen = self._choose(asked, members(among))
        tree = self._trees.setdefault(chosen, OrderedDict())
        for span in reversed(asked.hashes):  # the ends of texts are forgotten first
            tree[span] = None
            tree.move_to_end(span)
        while len(tree) * asked.span > self._num_tokens:
            tree.popitem(last=False)
        return chosen

    def _choose(self, asked: Asked, among: list[int]) -> int:
        most, least = max(self.num_open[each] for each in among), min(self.num_open[each] for each in among)
        if most - least > self._apart and most > self._times * least:
            return min(among, key=lambda each: self.num_open[each])
        matches = {each: self._num_matched(asked, each) for each in among}
        best = max(among, key=lambda each: matches[each])
        if matches[best] * asked.span > self._match * asked.num_tokens:
            return best
        return min(among, key=lambda each: len(self._trees.get(each, ())))

    def _num_matched(self, asked: Asked, replica: int) -> int:
        tree = self._trees.get(replica, {})
        return next((i for i, span in enumerate(asked.hashes) if span not in tree), len(asked.hashes))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--block-size", type=int, default=16)
    args = parser.parse_args()
    profile = replace(load_profile("h200-llama2-7b"), max_model_len=131_072)
    settings = Settings(block_size=args.block_size)
    limits = profile.limits(settings)
    items = parse_arrivals(f"trace:scale={args.scale}").apply(read(args.path, args.limit), 0)
    requests = list(requests_of(items, limits, 0))
    size = limits.max_pool_tokens
    rules: dict[str, Router] = {
        "round-robin": make_router("round-robin"),
        "least-loaded": make_router("least-loaded"),
        "prefix": make_router("prefix"),
        "tree": PrefixTree(size),
        "tree:apart=4,times=1.5": PrefixTree(size, apart=4, times=1.5),
        "tree:match=0.1,apart=4,times=1.5": PrefixTree(size, match=0.1, apart=4, times=1.5),
    }
    print(f"{'':34}{'ttft p50 ms':>12}{'p90':>9}{'p99':>9}{'max':>9}{'tpot p99':>10}{'cached':>12}")
    for name, rule in rules.items():
        make = partial(make_scheduler, limits, rules_of(settings, profile, limits))
        fleet = ReplicaRun(make, args.replicas, rule, profile.cost, profile.depth)
        if isinstance(rule, PrefixTree):
            rule.num_open = fleet.num_open
        fleet.run(requests)
        report = fleet.timeline.report()
        ttft = report.ttft_s
        spread = "".join(f"{1e3 * value:>9.0f}" for value in (ttft.p90, ttft.p99, ttft.max))
        print(
            f"{name:34}{1e3 * ttft.p50:>12.0f}{spread}{1e3 * report.tpot_s.p99:>10.1f}{report.cache_hit_tokens:>12}",
            flush=True,
        )


if __name__ == "__main__":
    main()
