"""Steps on MindSpore beside the same on torch's operations and on the native kernels: the embedded model in float32.

    make test-mindspore ARGS=--collect-only   # installs it
    PYTHONPATH=build/mindspore python benchmarks/cpu/mindspore_steps.py [--passes 5] [--threads 2]

All sides are loaded in one process and take turns; the smallest of all passes counts, of the wall clock and of the
process's own time, which other programs on a shared machine disturb less. Decodes have contexts of 129 tokens.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import time

from chairlift.build import find_model, load
from chairlift.config.settings import Settings
from chairlift.core.plan import StepPlan
from chairlift.core.ports import Runner
from chairlift.runner.start.synthetic_steps import GREEDY, run, synthetic_step

SIDES = {"mindspore": {"device": "mindspore:cpu"}, "torch": {"kernels": "torch"}, "native": {"kernels": "native"}}
DECODES, PROMPTS = (1, 4, 16, 64), (32, 128, 512)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time steps on MindSpore beside torch's.")
    for name, default in (("passes", 5), ("threads", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    settings = {"device": "cpu", "dtype": "float32", "num_blocks": 1024, "threads": options.threads}
    loaded = {name: load(find_model(Settings(**settings | side))) for name, side in SIDES.items()}  # type: ignore[arg-type]
    limits = loaded["torch"].limits
    steps = {f"decodes of {n}": synthetic_step([(128, 1)] * n, limits, n, GREEDY) for n in DECODES}
    steps |= {f"a prompt of {n}": synthetic_step([(0, n)], limits, 0, GREEDY) for n in PROMPTS}
    print(f"{'ms a step':16}" + "".join(f"{name:>12}{'own time':>10}" for name in loaded))
    for what, plan in steps.items():
        best = {name: (float("inf"), float("inf")) for name in loaded}
        for _ in range(1 + options.passes):  # the first may compile
            for name, side in loaded.items():
                best[name] = tuple(map(min, best[name], timed(side.runner, plan)))  # type: ignore[assignment]
        print(f"{what:16}" + "".join(f"{1e3 * wall:12.1f}{1e3 * own:10.1f}" for wall, own in best.values()), flush=True)


def timed(runner: Runner, plan: StepPlan) -> tuple[float, float]:
    wall, own = time.perf_counter(), time.process_time()
    run(runner, plan)
    return time.perf_counter() - wall, time.process_time() - own


if __name__ == "__main__":
    main()
