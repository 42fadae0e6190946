"""The simulator's error against a server: a model is calibrated, served over HTTP under traces, and simulated.

    python benchmarks/simulation/fidelity_served.py --model FOLDER --out FOLDER --traces FILE... [--random-weights]

`chairlift calibrate` runs first and sees nothing of the traces. Then one `chairlift serve` answers `chairlift bench`:
each trace as recorded, at two rates, which are shares of what the simulator serves when all come at once. Figures are
those of the load tester's clients. `--profile` uses a profile instead of calibrating; `--divide-lengths` makes requests
shorter, for a CPU; further arguments after `--` go to both servers and the calibration (`-- --memory 0.8`), limits are
taken from the environment (CHAIRLIFT_MAX_MODEL_LEN=16384).

Writes the profile (profile.json), each live run (TRACE-SHARE/bench.json) and, after each of them, the figures so far
(fidelity.json).
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chairlift.config.settings import Settings
from chairlift.lab.sim.calibration.serving_path import serving, settle
from chairlift.lab.sim.profile import Profile, load_profile
from chairlift.lab.sim.run import run as simulated
from chairlift.lab.workload.arrivals import parse_arrivals
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item

SHARES = (0.5, 0.85)  # of capacity
MOST = 1000  # requests that capacity is found with
LONGEST = 15_000  # tokens of a request
LIMITS = {"TTFT p50": 0.10, "TTFT p90": 0.10, "TTFT p99": None, "TPOT p50": 0.07, "TPOT p90": 0.07, "TPOT p99": None}


@dataclass(frozen=True, slots=True)
class Load:
    trace: Path
    share: float
    count: int
    divide: float
    longest: int
    arrivals: str

    @property
    def name(self) -> str:
        return f"{self.trace.stem}-{self.share:g}"

    def items(self) -> list[Item]:
        return list(read(self.trace, self.count, self.divide, self.longest))


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def calibrated(args: argparse.Namespace, flags: list[str]) -> Profile:
    if args.profile:
        return load_profile(args.profile)
    path = args.out / "profile.json"
    started = time.monotonic()
    quick = ["--quick"] if args.quick else []
    subprocess.run([sys.executable, "-m", "chairlift", "calibrate", "--out", str(path), *quick, *flags], check=True)
    profile = load_profile(str(path))
    say(f"calibrated in {time.monotonic() - started:.0f} s: {profile.note}")
    cost = profile.cost
    host = f"{1e3 * cost.start_s:.1f} ms and {1e6 * cost.start_row_s:.1f} us a row"
    say(f"outside the steps {1e3 * profile.arrival_s:.1f} ms, before an idle device {host}")
    return profile


def loads(args: argparse.Namespace, profile: Profile) -> list[Load]:
    """Of `args.seconds` each."""
    found = []
    longest = min(LONGEST, profile.max_model_len)
    for trace in args.traces:
        items = list(read(trace, MOST, args.divide_lengths, longest))
        capacity = simulated(Settings(), profile, items, parse_arrivals("none")).requests_per_s
        for share in args.shares:
            rate = share * capacity
            count = max(20, min(len(items), round(rate * args.seconds)))
            scale = (count - 1) / ((items[count - 1].arrival_s - items[0].arrival_s) * rate)
            say(f"{trace.stem}: {rate:.2f} requests/s are {share:g} of capacity; {count} requests")
            found.append(Load(trace, share, count, args.divide_lengths, longest, f"trace:scale={scale:.6f}"))
    return found


def live(url: str, load: Load, out: Path, seed: int) -> dict[str, float]:
    shutil.rmtree(out / load.name, ignore_errors=True)  # of a run before, which would be kept
    command = [sys.executable, "-m", "chairlift", "bench", "--url", url, "--workload", str(load.trace)]
    command += ["--arrivals", load.arrivals, "--limit", str(load.count), "--divide-lengths", str(load.divide)]
    command += ["--max-length", str(load.longest), "--warmup", "60", "--seed", str(seed), "--out", str(out / load.name)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    figures = json.loads((out / load.name / "bench.json").read_text())["figures"]
    if done.returncode or figures["full"] != load.count:
        say(f"{load.name}: {figures['full']} of {load.count} answered in full (exit code {done.returncode})")
    return figures_of(figures["ttft_s"], figures["tpot_s"])


def figures_of(ttft_s: dict[str, float], tpot_s: dict[str, float]) -> dict[str, float]:
    spreads = {"TTFT": ttft_s, "TPOT": tpot_s}
    return {f"{name} {share}": spread[share] for name, spread in spreads.items() for share in ("p50", "p90", "p99")}


def guessed(load: Load, profile: Profile, seed: int) -> dict[str, float]:
    report = simulated(Settings(), profile, load.items(), parse_arrivals(load.arrivals), seed)
    ttft_s, tpot_s = (
        {p: getattr(spread, p) for p in ("p50", "p90", "p99")} for spread in (report.ttft_s, report.tpot_s)
    )
    return figures_of(ttft_s, tpot_s)


def compared(load: Load, real: dict[str, float], guess: dict[str, float]) -> list[dict[str, Any]]:
    rows = []
    for figure, limit in LIMITS.items():
        off = guess[figure] / real[figure] - 1.0 if real[figure] else 0.0
        rows.append(
            {"run": load.name, "figure": figure, "live_s": real[figure], "simulated_s": guess[figure], "off": off}
        )
        verdict = "" if limit is None else f"{limit:.0%}" + ("" if abs(off) <= limit else ", **missed**")
        print(
            f"| {load.name} | {figure} | {1e3 * real[figure]:.1f} ms | {1e3 * guess[figure]:.1f} ms | {off:+.1%} | "
            f"{verdict} |", flush=True,
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of the model (default: the embedded one)")
    parser.add_argument("--traces", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--random-weights", action="store_true")
    parser.add_argument("--profile")
    parser.add_argument("--quick", action="store_true", help="calibrate quickly")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each live run")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--divide-lengths", type=float, default=1.0)
    parser.add_argument("more", nargs="*", help="arguments of calibrate and serve, after --")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    flags = [*(["--model", args.model] if args.model else []), *args.more]
    flags += ["--load-format", "dummy"] if args.random_weights else []
    profile = calibrated(args, flags)
    rows: list[dict[str, Any]] = []
    with serving(flags) as url:
        settle(url)
        say(f"serving on {url}")
        print("| run | figure | live | simulated | off | limit |\n|---|---|---|---|---|---|", flush=True)
        for seed, load in enumerate(loads(args, profile)):
            real = live(url, load, args.out, seed)  # another seed, other prompts: no run finds another's in the cache
            rows += compared(load, real, guessed(load, profile, seed))
            (args.out / "fidelity.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
