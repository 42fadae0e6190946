"""Where layers whose memory does not grow take checkpoints: rules against each other, simulated on an H200.

    python benchmarks/simulation/checkpoints.py --mooncake FILE [--work chats] [--model 35b-a3b] [--gib 64 256]

For each rule: prompt tokens hit, and against those that layers of attention alone would hit in the same memory; the
share of pages that hold checkpoints, on average; how many were written; and the time to the first token. Models are
those of Qwen, by their shapes; states take two bytes a number (`--state-bytes 4`: four). Step times are ceilings:
weights and keys and values at 4.2 TB/s, products at 780 TFLOP/s.

`mooncake`: the trace, its prompts cut to whole blocks of its hash ids, since the last one has an id of its own and
would never be shared. `prefixes`: 1,000 questions after one of 40 system prompts. `chats`: conversations whose template
drops the reasoning of earlier turns and ends a prompt with five tokens that the next turn lacks.
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from chairlift.config.scheduler import make_scheduler
from chairlift.config.settings import Settings
from chairlift.core.memory.fixed import FixedTables
from chairlift.core.memory.pages import CHECKPOINT_TOKENS, Group
from chairlift.core.plan import StepPlan, StepResult
from chairlift.core.scheduling.scheduler import Scheduler
from chairlift.lab.sim.cost import CostModel
from chairlift.lab.sim.profile import Profile
from chairlift.lab.sim.run import simulate
from chairlift.lab.sim.setup import rules_of
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import HASH_BLOCK, Item
from chairlift.lab.workload.requests import requests_of
from chairlift.telemetry.report import Report
from chairlift.telemetry.timeline import Timeline

BYTES_PER_S, FLOP_PER_S, GIB = 4.2e12, 780e12, 1 << 30
TILE, HEAD_DIM, KEY_DIM, CONV = (
    16,
    256,
    128,
    3,
)  # tokens; numbers of a head; of a head of a state; rows of a convolution
NEVER = 1 << 30  # tokens
LOAD = 0.4  # of what the products alone allow


@dataclass(frozen=True)
class Shape:
    """Of a model whose every fourth layer is attention, the others gated delta nets."""

    layers: int
    heads: int
    kv_heads: int
    key_heads: int
    value_heads: int
    weights: float  # bytes read by a step of many rows
    flop: float  # of a token, attention left out

    @property
    def page_bytes(self) -> int:
        """Of a layer."""
        return TILE * 2 * 2 * self.kv_heads * HEAD_DIM

    def group(self, every: int, state_bytes: int) -> Group:
        per_layer = (
            state_bytes * self.value_heads * KEY_DIM**2,
            2 * CONV * (2 * self.key_heads + self.value_heads) * KEY_DIM,
        )
        rows = 4 * TILE * ((self.key_heads + self.value_heads) * KEY_DIM + self.value_heads)
        num_state = sum(-(-size // self.page_bytes) for size in per_layer)
        return Group("fixed", 3 * num_state, every, 3 * -(-rows // self.page_bytes))


MODELS = {
    "27b": Shape(64, 24, 4, 16, 48, 51e9, 48.7e9),
    "35b-a3b": Shape(40, 16, 2, 16, 32, 60e9, 4.9e9),
    "0.8b": Shape(24, 8, 2, 16, 16, 1.5e9, 1.5e9),
}


def profile_of(name: str, groups: tuple[Group, ...]) -> Profile:
    shape = MODELS[name]
    full, kv_bytes = shape.layers // 4, shape.layers // 4 * 4 * shape.kv_heads * HEAD_DIM
    rows = (1, 64, 256, 1024, 4096, 8192)
    return Profile(
        name=name, model=name, device="NVIDIA H200", dtype="bfloat16", vocab_size=65_536, max_model_len=131_072,
        max_running=256, max_step_tokens=4096, kv_token_bytes=kv_bytes, kv_memory=GIB, groups=groups,
        cost=CostModel(
            linear=tuple((num, max(shape.weights / BYTES_PER_S, num * shape.flop / FLOP_PER_S)) for num in rows),
            step_s=0.0008,
            kv_token_s=kv_bytes / BYTES_PER_S,
            pair_s=4 * shape.heads * HEAD_DIM * full / FLOP_PER_S,
            copy_token_s=2 * kv_bytes / BYTES_PER_S,
        ),
    )  # fmt: skip


def _mooncake(path: Path) -> list[Item]:
    items = list(read(path))
    return [replace(item, prompt_tokens=max(1, len(item.hash_ids) - 1) * HASH_BLOCK) for item in items]


def _prefixes() -> list[Item]:
    rng = random.Random(1)
    prompts = [tuple(rng.randrange(1 << 16) for _ in range(rng.randint(1000, 12_000))) for _ in range(40)]
    popularity = list(accumulate(1 / rank for rank in range(1, 41)))
    found = []
    for _ in range(1000):
        (prompt,) = rng.choices(prompts, cum_weights=popularity)
        found.append(_written(prompt + tuple(rng.randrange(1 << 16) for _ in range(rng.randint(20, 600))), 256))
    return _arriving(found, rng)


def _chats() -> list[Item]:
    rng = random.Random(2)
    system = tuple(rng.randrange(1 << 16) for _ in range(1200))
    chats: list[list[Item]] = []
    for _ in range(150):
        text, turns = list(system), []
        for _ in range(rng.randint(2, 10)):
            text += [rng.randrange(1 << 16) for _ in range(rng.randint(50, 3000))]
            num_answer = rng.randint(50, 800)
            turns.append(_written((*text, 1, 2, 3, 4, 5), 400 + num_answer))
            text += [1, 2, 9, *(rng.randrange(1 << 16) for _ in range(num_answer))]
        chats.append(turns)
    order = [chat for chat in chats for _ in chat]
    rng.shuffle(order)
    return _arriving([chat.pop(0) for chat in order], rng)


def _written(tokens: tuple[int, ...], num_output: int) -> Item:
    return Item(prompt_tokens=len(tokens), output_tokens=num_output, tokens=tokens)


def _arriving(items: list[Item], rng: random.Random) -> list[Item]:
    """One a second."""
    times = accumulate(rng.expovariate(1.0) for _ in items)
    return [replace(item, arrival_s=at) for item, at in zip(items, times, strict=True)]


@dataclass(frozen=True)
class Rule:
    every: int
    is_chosen: Callable[..., bool] | None = None  # None: as the core has it


def _last_tile(tables, progress, held, position: int) -> bool:
    return position == (len(progress.request.prompt) - 1) // TILE * TILE


def _end(tables, progress, held, position: int) -> bool:
    return position == (len(progress.request.prompt) - TILE) // TILE * TILE


RULES = {
    "last": Rule(NEVER, _last_tile),
    "end": Rule(NEVER, _end),
    "junction": Rule(NEVER),
    "16384": Rule(CHECKPOINT_TOKENS),
    "4096": Rule(4096),
    "block": Rule(TILE),
}


class _Watched(Timeline):
    """Counts checkpoints, and the pages that hold some while prompts are computed."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler.pool)
        self._pool = scheduler.pool
        self.num_written = 0
        self.num_pages: list[int] = []

    def committed(self, plan: StepPlan, result: StepResult, now: float) -> None:
        super().committed(plan, result, now)
        self.num_written += len(plan.checkpoints)
        if len(plan.chunks) > plan.num_decoding:
            self.num_pages.append(sum(len(list(beside)) for beside in self._pool._beside))


def run(model: str, group: Group | None, items: list[Item], gib: float) -> tuple[Report, _Watched, int]:
    """With the pages of the pool."""
    profile, settings = profile_of(model, (group,) if group else ()), Settings()
    num_blocks = round(gib * GIB) // (settings.block_size * profile.kv_token_bytes)
    limits = replace(profile.limits(settings), num_blocks=num_blocks)
    scheduler = make_scheduler(limits, rules_of(settings, profile, limits))
    watched = _Watched(scheduler)
    work_s = sum(item.prompt_tokens + item.output_tokens for item in items) * MODELS[model].flop / FLOP_PER_S
    arrivals = parse_arrivals(f"trace:scale={work_s / LOAD / items[-1].arrival_s:.6f}")
    simulate(requests_of(arrivals.apply(items, 0), limits, 0), scheduler, profile.cost, watched)
    return watched.report(), watched, num_blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mooncake", type=Path)
    parser.add_argument("--work", nargs="+", default=["mooncake", "prefixes", "chats"])
    parser.add_argument("--model", default="27b", choices=MODELS)
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=RULES)
    parser.add_argument("--gib", nargs="+", type=float, default=[32, 64], help="of keys, values and states")
    parser.add_argument("--state-bytes", type=int, default=2)
    args = parser.parse_args()
    usual = FixedTables._is_chosen
    print(
        "| work | rule | hit | of attention's | pages | written | TTFT mean / p90, s |\n|---|---|---|---|---|---|---|"
    )
    for work in args.work:
        items = _mooncake(args.mooncake) if work == "mooncake" else {"prefixes": _prefixes, "chats": _chats}[work]()
        for gib in args.gib:
            alone, _, _ = run(args.model, None, items, gib)
            name = f"{work}, {gib:g} GiB"
            print(f"| {name} | attention alone | {_share(alone)} | | | | {_ttft(alone)} |", flush=True)
            for rule in args.rules:
                FixedTables._is_chosen = RULES[rule].is_chosen or usual
                group = MODELS[args.model].group(RULES[rule].every, args.state_bytes)
                report, watched, num_blocks = run(args.model, group, items, gib)
                ratio = report.cache_hit_tokens / alone.cache_hit_tokens
                pages = sum(watched.num_pages) / len(watched.num_pages) / num_blocks
                row = f"{_share(report)} | {ratio:.2f} | {pages:.1%} | {watched.num_written} | {_ttft(report)}"
                print(f"| {name} | {rule} | {row} |", flush=True)


def _share(report: Report) -> str:
    return f"{report.cache_hit_tokens / report.prompt_tokens:.1%}"


def _ttft(report: Report) -> str:
    return f"{report.ttft_s.mean:.2f} / {report.ttft_s.p90:.2f}"


if __name__ == "__main__":
    main()
