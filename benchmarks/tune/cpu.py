"""The gain of tuning on this machine: the defaults and the pick of `chairlift tune`, live and in turns.

    python benchmarks/tune/cpu.py --workload FILE [--limit 150] [--divide-lengths 4] [--rounds 5] [--json OUT]

The first requests of the workload with lengths divided, all at once, on the embedded model. The steps are calibrated
before the search and again between the live runs, because the machine's speed drifts; the prediction uses all of it,
for the setting that the search picked with the first part. Both settings run once a round, the other one first in
every second round; the gain of a round is the throughput of one over that of the other. Nothing else should run
meanwhile. If the search keeps the defaults, the best setting it saw replaces the pick: the table then shows how little
it gains.
"""

import argparse
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from chairlift.build import find_model, let_threads_sleep, load, rules_of
from chairlift.config.settings import Settings
from chairlift.lab.sim.profile import Profile
from chairlift.lab.tune.evaluate import Evaluation, Evaluator, Work
from chairlift.lab.tune.knobs import Choice, changes, default_choice, knobs_of, shown, with_choice
from chairlift.lab.tune.tuning import Tuning
from chairlift.lab.workload.file import read
from chairlift.lab.workload.item import Item
from chairlift.telemetry.report import Report

let_threads_sleep()

from chairlift.lab.sim.calibration.calibrate import Calibrator, profile_of  # noqa: E402
from chairlift.lab.sim.run import run_live  # noqa: E402
from chairlift.lab.sim.setup import make_scheduler  # noqa: E402
from chairlift.lab.workload.arrivals import parse_arrivals  # noqa: E402

ROUNDS = 3  # of a calibration, each time


class Live(NamedTuple):
    settings: Settings
    items: list[Item]

    def run(self) -> Report:
        loaded = load(find_model(self.settings))
        for items in (self.items[:16], self.items):  # the first ones warm up
            scheduler = make_scheduler(loaded.limits, rules_of(self.settings, loaded))
            report = run_live(loaded.runner, scheduler, items, parse_arrivals("none"))
        return report


class Machine:
    """The embedded model, with its steps timed between runs."""

    def __init__(self) -> None:
        self.model = find_model(Settings(preemption="swap"))
        usual = load(self.model).limits
        wide = Settings(preemption="swap", max_running=2 * usual.max_running, max_step_tokens=2 * usual.max_step_tokens)
        self._usual = usual
        self._loaded = load(find_model(wide))
        self._calibrator = Calibrator(self._loaded.runner, self._loaded.limits, self._loaded.num_host_blocks, True)

    def calibrate(self) -> Profile:
        self._calibrator.time(ROUNDS)
        found = self._calibrator.result()
        profile = profile_of("here", self.model.name, self.model.config, self._loaded, found)
        return replace(profile, max_running=self._usual.max_running, max_step_tokens=self._usual.max_step_tokens)


def searched(profile: Profile, items: list[Item], minutes: float) -> tuple[Tuning, Evaluation]:
    """The tuning, and the setting that is compared with the defaults."""
    work = Work(Settings(), {0: profile}, tuple(items), "none")
    tuning = Tuning(work, knobs_of(Settings(), profile, items), 60.0 * minutes)
    tuning.run(say)
    assert tuning.pick is not None and tuning.default is not None
    if tuning.pick.choice != tuning.default.choice:
        return tuning, tuning.pick
    others = [o for o in tuning.goal.ranked(tuning.final) if o.choice != tuning.default.choice]
    return tuning, others[0]


def predicted(profile: Profile, items: list[Item], choice: Choice) -> Report:
    report = Evaluator(Work(Settings(), {0: profile}, tuple(items), "none")).evaluate(choice).report
    assert report is not None
    return report


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=150)
    parser.add_argument("--divide-lengths", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1.5, help="minutes of search (default: %(default)s)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    items = list(read(args.workload, args.limit, args.divide_lengths))
    machine = Machine()
    say("calibrating")
    tuning, pick = searched(machine.calibrate(), items, args.minutes)
    default = default_choice(tuning.knobs)
    say(f"the defaults are fine: {tuning.is_default_fine}; against them: {shown(changes(pick.choice, tuning.knobs))}")
    seconds: dict[str, list[float]] = {"default": [], "pick": []}
    lives = {"default": Live(Settings(), items), "pick": Live(with_choice(Settings(), pick.choice), items)}
    profile = machine.calibrate()
    for number in range(args.rounds):
        for name in ("default", "pick") if number % 2 == 0 else ("pick", "default"):
            report = lives[name].run()
            assert report.finished == len(items)
            seconds[name].append(report.total_s)
            say(f"round {number + 1}, {name}: {report.total_s:.2f} s")
        profile = machine.calibrate()
    before, after = predicted(profile, items, default).total_s, predicted(profile, items, pick.choice).total_s
    ratios = sorted(one / other for one, other in zip(seconds["default"], seconds["pick"], strict=True))
    gain, guess = statistics.median(ratios), before / after
    print("| | predicted, s | measured, s (median, spread) |\n|---|---|---|")
    for name, guess_s in (("default", before), ("pick", after)):
        each = sorted(seconds[name])
        print(f"| {name} | {guess_s:.2f} | {statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f}) |")
    print(f"\npick: `{shown(changes(pick.choice, tuning.knobs))}`; the defaults are fine: {tuning.is_default_fine}")
    print(f"default / pick: predicted {guess:.3f}, measured {gain:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}), "
          f"off by {guess / gain - 1:+.1%}")  # fmt: skip
    if args.json:
        about = {
            "workload": args.workload.name, "limit": args.limit, "divide_lengths": args.divide_lengths,
            "pick": changes(pick.choice, tuning.knobs), "defaults_are_fine": tuning.is_default_fine,
            "predicted_s": {"default": before, "pick": after}, "measured_s": seconds, "predicted_gain": guess,
            "measured_gain": gain,
        }  # fmt: skip
        args.json.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
