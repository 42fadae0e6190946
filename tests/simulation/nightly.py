"""Many random worlds under three hash seeds: the long form of test_small_worlds.py.

    python tests/simulation/nightly.py [--worlds 20000] [--processes 2] [--first 0] [--mixed]

`--mixed`: worlds whose layers keep states, and windows beside them, as in test_state_worlds.py.

Each world runs once for each hash seed, every step with the invariants checked and every request compared with the
tokens it gets alone; the plans of the three runs must be equal. Prints what was run of each rule, preemption mode and
block size, and the seeds that failed; the exit code says whether there were any.
"""

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent
HASH_SEEDS = ("0", "1", "4242")
BLOCK = 50  # worlds per line of a worker
FAMILIES = ("policy", "prefill", "admission", "preemption", "block_size")


def run_block(seeds: range, is_mixed: bool) -> dict[str, object]:
    """The worlds of these seeds: a digest of all plans and events, what they were, and what failed."""
    from chairlift.core.events import Admitted, Forked, Preempted
    from fakes.worlds.draws import any_mixed_world, random_world

    draw = any_mixed_world if is_mixed else random_world
    digest, failures, num_steps = 0, [], 0
    counts: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for seed in seeds:
        world = draw(seed)
        counts.update(f"{family} {world.about[family]}" for family in FAMILIES)
        counts[" x ".join(world.about[family] for family in ("policy", "preemption", "block_size"))] += 1
        counts[" x ".join(world.about[family] for family in ("policy", "prefill", "admission"))] += 1
        try:
            world.run()
        except Exception as error:
            failures.append(f"seed {seed}: {type(error).__name__}: {error}")
        for plan in world.runner.plans:
            chunks = [(c.request.id, c.start, c.count, c.tables) for c in plan.chunks]
            text = repr((chunks, plan.copies, plan.swap_outs, plan.swap_ins, plan.checkpoints))
            digest = zlib.crc32(text.encode(), digest)
            events["checkpoints"] += len(plan.checkpoints)
        digest = zlib.crc32(repr(world.events).encode(), digest)
        num_steps += len(world.runner.plans)
        events["admitted"] += sum(isinstance(e, Admitted) for e in world.events)
        events["with a cached prefix"] += sum(isinstance(e, Admitted) and e.num_cached > 0 for e in world.events)
        events["forked"] += sum(isinstance(e, Forked) for e in world.events)
        events["preempted"] += sum(isinstance(e, Preempted) for e in world.events)
        events["of them swapped out"] += sum(isinstance(e, Preempted) and e.is_swapped for e in world.events)
        groups = [group for groups in world.arrivals.values() for group in groups]
        events["beam searches"] += sum(group[0].params.beam_width > 0 for group in groups)
        events["prompts with several samples"] += sum(len(g) > 1 and not g[0].params.beam_width for g in groups)
    return {"first": seeds[0], "digest": digest, "failures": failures, "steps": num_steps, "worlds": len(seeds),
            "counts": counts, "events": events}  # fmt: skip


def run_all(first: int, worlds: int, processes: int, hash_seed: str, is_mixed: bool) -> Iterator[dict[str, object]]:
    """Every block's line, as the workers finish them."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"}
    with selectors.DefaultSelector() as selector:
        for worker in range(processes):
            command = [sys.executable, __file__, "--worlds", str(worlds), "--first", str(first),
                       "--worker", f"{worker}/{processes}", *["--mixed"] * is_mixed]  # fmt: skip
            child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            selector.register(child.stdout, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select():
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if line:
                    yield json.loads(line)
                else:
                    selector.unregister(key.fileobj)
                    if key.data.wait():
                        raise SystemExit(f"a worker ended with {key.data.returncode}")


def work(first: int, worlds: int, share: str, is_mixed: bool) -> None:
    worker, processes = map(int, share.split("/"))
    for start in range(first + worker * BLOCK, first + worlds, processes * BLOCK):
        print(json.dumps(run_block(range(start, min(start + BLOCK, first + worlds)), is_mixed)), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mixed", action="store_true", help="layers keep states, and windows beside them")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.first, args.worlds, args.worker, args.mixed)
        return 0
    started = time.monotonic()
    digests: dict[int, set[int]] = {}
    failures: list[str] = []
    counts: Counter[str] = Counter()
    events: Counter[str] = Counter()
    num_steps = 0
    for i, hash_seed in enumerate(HASH_SEEDS):
        num_done = 0
        for block in run_all(args.first, args.worlds, args.processes, hash_seed, args.mixed):
            digests.setdefault(block["first"], set()).add(block["digest"])  # type: ignore[arg-type]
            num_done += block["worlds"]  # type: ignore[operator]
            if i == 0:
                counts.update(block["counts"])  # type: ignore[arg-type]
                events.update(block["events"])  # type: ignore[arg-type]
                num_steps += block["steps"]  # type: ignore[operator]
            for failure in block["failures"]:  # type: ignore[attr-defined]
                failures.append(f"hash seed {hash_seed}, {failure}")
                print(failures[-1], flush=True)
            if sys.stderr.isatty():
                print(f"\rhash seed {hash_seed}: {num_done} of {args.worlds} worlds", end="", file=sys.stderr)
    differing = sorted(first for first, found in digests.items() if len(found) > 1)
    print(f"\n{args.worlds} worlds from seed {args.first}, each under {len(HASH_SEEDS)} hash seeds: "
          f"{num_steps} steps, {time.monotonic() - started:.0f} s")  # fmt: skip
    print(f"failed: {len(failures)}; plans that differ between hash seeds: {len(differing)}")
    print("what happened: " + ", ".join(f"{count} {name}" for name, count in events.items()))
    for family in FAMILIES:
        ran = {name.split(" ", 1)[1]: count for name, count in counts.items() if name.startswith(f"{family} ")}
        print(f"{family}: " + ", ".join(f"{name} {count}" for name, count in sorted(ran.items())))
    crossed = [count for name, count in counts.items() if " x " in name]
    print(f"policy x preemption x block size, policy x prefill x admission: {len(crossed)} combinations, "
          f"each {min(crossed)} times or more")  # fmt: skip
    for start in differing:
        print(f"plans differ between hash seeds in worlds {start} to {start + BLOCK - 1}")
    return 1 if failures or differing else 0


if __name__ == "__main__":
    sys.exit(main())
