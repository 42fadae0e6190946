"""`chairlift calibrate`: a profile of a model on this machine, for the simulator."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.inputs.flags import (
    add_model_argument,
    add_option_flags,
    arguments_of,
    progress,
    warn,
    warned_model,
    warned_settings,
)
from chairlift.core.errors import ChairliftError, InvalidConfig

if TYPE_CHECKING:
    from chairlift.lab.sim.calibration.serving_path import FirstTokens

HELP = "time a model's steps here, for simulate --profile"
DESCRIPTION = (
    "Time a model's steps on this machine and write the profile that predicts them. The machine should be idle "
    "otherwise. Limits such as max_running come from --config or the environment."
)
USAGE = "[MODEL] --out FILE [options]"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="write the profile to this file")
    parser.add_argument("--quick", action="store_true", help="time fewer shapes and repeats: seconds, but less exact")
    parser.add_argument(
        "--serve", action=argparse.BooleanOptionalAction, default=True,
        help="start a server of the model first, to measure the time outside the steps (default: on)",
    )  # fmt: skip
    add_option_flags(parser, "model")


def run(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    if not options.out.parent.is_dir():  # refused before a minute of timing
        raise InvalidConfig(f"{options.out}: cannot be written: no such folder")
    found_first = _first_tokens(options) if options.serve else ()
    from chairlift.build import load

    # Host blocks are timed whatever the settings say about preemption.
    model = warned_model(replace(settings, preemption="swap"))
    loaded = load(model)
    from chairlift.lab.sim.calibration.calibrate import calibrate, profile_of

    with progress(_advance, unit=" steps") as watch:
        found = calibrate(loaded.runner, loaded.limits, loaded.num_host_blocks, options.quick, watch)
    profile = profile_of(options.out.stem, model.name, model.config, loaded, found)
    from chairlift.lab.sim.calibration.serving_path import arrival_of
    from chairlift.serving.parent import num_frontends

    arrival_s, token_s = arrival_of(profile, found_first)
    profile = replace(profile, arrival_s=arrival_s, arrival_token_s=token_s, frontends=num_frontends(settings))
    profile.write(options.out)
    print(f"{profile.model} on {profile.device}, {profile.dtype}: {profile.note}")
    if found_first:
        print(f"outside the steps: {1e3 * arrival_s:.1f} ms, {1e6 * token_s:.2f} ms more per 1,000 prompt tokens")
    print(f"wrote {options.out}")
    return 0


def _first_tokens(options: argparse.Namespace) -> "FirstTokens":
    """Empty, with a warning, if the model cannot be served."""
    from chairlift.lab.sim.calibration.serving_path import first_tokens

    try:
        return first_tokens(arguments_of(options))
    except (ChairliftError, OSError) as error:
        warn([f"the time outside the steps was not measured: {error}; --no-serve leaves it out"])
        return ()


def _advance(bar: Any, done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)
