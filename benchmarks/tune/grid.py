"""The reference for `chairlift tune`: every setting of a grid, simulated.

    python benchmarks/tune/grid.py --workload FILE [--profile h200-llama2-7b] [--out docs/results/NAME]
    python benchmarks/tune/grid.py --check tune.json --against docs/results/NAME.json

Order {first come, shortest, longest, similar} x running limit {32 to 1,024 by powers of two} x step budget {512 to
8,192} x admission rule {prompt, peak, reserve}, all requests present at the start; step budgets below the running limit
are invalid and left out. Nothing is drawn: every run gives the same table. NAME.json has every row, NAME.md
the best ones. `--check` says how close the pick of a tuning is to the best of such a grid.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from chairlift.config.settings import Settings
from chairlift.core.policies.known import ADMISSIONS
from chairlift.lab.sim.profile import DEFAULT, load_profile
from chairlift.lab.sim.run import run
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read

POLICIES = ("fcfs", "shortest-first", "longest-first", "similar-length")
RUNNING = (32, 64, 128, 256, 512, 1024)
BUDGETS = (512, 1024, 2048, 4096, 8192)
SHOWN = 12


class Row(NamedTuple):
    policy: str
    max_running: int
    max_step_tokens: int
    admission: str
    total_s: float = 0.0
    output_tokens_per_s: float = 0.0
    steps: int = 0
    e2e_mean_s: float = 0.0
    ttft_p50_s: float = 0.0
    ttft_p99_s: float = 0.0
    tpot_p50_s: float = 0.0

    @property
    def options(self) -> str:
        return (
            f"`--policy {self.policy} --max-running {self.max_running} --max-step-tokens {self.max_step_tokens} "
            f"--admission {self.admission}`"
        )


def settings() -> Iterator[Row]:
    for policy, running, budget, admission in itertools.product(POLICIES, RUNNING, BUDGETS, ADMISSIONS):
        if running <= budget:
            yield Row(policy, running, budget, admission)


def simulated(row: Row, workload: Path, profile: str) -> Row:
    asked = Settings(
        policy=row.policy, max_running=row.max_running, max_step_tokens=row.max_step_tokens, admission=row.admission
    )
    report = run(asked, load_profile(profile), read(workload), parse_arrivals("none"))
    assert report.finished == report.requests
    return row._replace(
        total_s=report.total_s,
        output_tokens_per_s=report.output_tokens_per_s,
        steps=report.steps,
        e2e_mean_s=report.e2e_s.mean,
        ttft_p50_s=report.ttft_s.p50,
        ttft_p99_s=report.ttft_s.p99,
        tpot_p50_s=report.tpot_s.p50,
    )


def table(rows: list[Row]) -> Iterator[str]:
    yield "| options | steps | total, s | latency mean, s | TTFT p50 / p99, s | TPOT p50, ms |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        times = f"{row.e2e_mean_s:.2f} | {row.ttft_p50_s:.2f} / {row.ttft_p99_s:.2f} | {1e3 * row.tpot_p50_s:.1f}"
        yield f"| {row.options} | {row.steps} | {row.total_s:.3f} | {times} |"


def page(rows: list[Row], workload: str, profile: str, seconds: float) -> str:
    best = [min((r for r in rows if (r.policy, r.max_running) == each), key=lambda r: r.total_s)
            for each in itertools.product(POLICIES, RUNNING)]  # fmt: skip
    lines = [
        "# Every setting of a grid on the contest workload, simulated\n",
        f"`python benchmarks/tune/grid.py --workload {workload} --profile {profile}`: {len(rows)} settings, all",
        f"requests there at the start, {seconds:.0f} s on two cores beside others. Recorded before `chairlift tune`",
        "was run on this workload, so that its pick can be held against a truth it did not make. All rows are in the",
        "JSON file beside this one.\n",
        f"## The best {SHOWN}\n",
        *table(rows[:SHOWN]),
        "\n## The best step budget and admission of each order and running limit\n",
        *table(best),
    ]
    return "\n".join(lines) + "\n"


def check(tuned: Path, grid: Path) -> None:
    found, best = json.loads(tuned.read_text()), json.loads(grid.read_text())["rows"][0]
    pick, total_s = found["pick"]["changes"], found["pick"]["report"]["total_s"]
    print(f"pick {pick}: {total_s:.3f} s; {found['configurations']} settings in {found['search_s']:.0f} s")
    print(f"best of the grid: {best['total_s']:.3f} s; the pick takes {total_s / best['total_s'] - 1:+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", type=Path)
    parser.add_argument("--check", type=Path, help="tune.json to check")
    parser.add_argument("--against", type=Path, help="JSON file of a grid to check it against")
    parser.add_argument("--profile", default=DEFAULT)
    parser.add_argument("--out", type=Path, help="write this name with .md and .json")
    args = parser.parse_args()
    if args.check:
        check(args.check, args.against)
        return
    if not args.workload:
        parser.error("--workload is missing")
    started = time.monotonic()
    with ProcessPoolExecutor(2) as workers:
        work = partial(simulated, workload=args.workload, profile=args.profile)
        rows = sorted(workers.map(work, settings()), key=lambda row: row.total_s)
    text = page(rows, args.workload.name, args.profile, time.monotonic() - started)
    print(text)
    if args.out:
        args.out.with_suffix(".md").write_text(text)
        about = {"workload": args.workload.name, "arrivals": "none", "profile": args.profile}
        values = ",\n  ".join(json.dumps(row._asdict()) for row in rows)
        args.out.with_suffix(".json").write_text(f'{{{json.dumps(about)[1:-1]}, "rows": [\n  {values}\n]}}\n')


if __name__ == "__main__":
    main()
