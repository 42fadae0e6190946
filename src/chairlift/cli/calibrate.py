"""`chairlift calibrate`: a profile of a model on this machine, for the simulator."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from chairlift.cli.inputs.flags import add_option_flags, progress, warned_model, warned_settings
from chairlift.core.errors import InvalidConfig

HELP = "time a model's steps here, for simulate --profile"
DESCRIPTION = (
    "Time a model's steps on this machine and write the profile that predicts them. The machine should be idle "
    "otherwise. Limits such as max_running come from --config or the environment."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="write the profile to this file")
    parser.add_argument("--quick", action="store_true", help="time fewer shapes and repeats: seconds, but less exact")
    add_option_flags(parser, "model")


def run(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    if not options.out.parent.is_dir():  # refused before a minute of timing
        raise InvalidConfig(f"{options.out}: cannot be written: no such folder")
    from chairlift.build import load

    # Host blocks are timed whatever the settings say about preemption.
    model = warned_model(replace(settings, preemption="swap"))
    loaded = load(model)
    from chairlift.sim.calibration.calibrate import calibrate, profile_of

    with progress(_advance, unit=" steps") as watch:
        found = calibrate(loaded.runner, loaded.limits, loaded.num_host_blocks, options.quick, watch)
    profile = profile_of(options.out.stem, model.name, model.config, loaded, found)
    profile.write(options.out)
    print(f"{profile.model} on {profile.device}, {profile.dtype}: {profile.note}")
    print(f"wrote {options.out}")
    return 0


def _advance(bar: Any, done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)
