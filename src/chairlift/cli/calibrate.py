"""`chairlift calibrate`: a profile of a model on this machine, for the simulator."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from chairlift.cli.flags import add_option_flags, settings_from, show_warnings
from chairlift.core.errors import InvalidConfig


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "calibrate",
        help="time a model's steps here, for simulate --profile",
        description="Time a model's steps on this machine and write the profile that predicts them. It should have "
        "nothing else to do meanwhile. Limits such as max_running are taken from --config or the environment.",
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the profile is written")
    parser.add_argument("--quick", action="store_true", help="fewer shapes and repeats: seconds, but less exact")
    add_option_flags(parser, "model")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    show_warnings(settings)
    if not options.out.parent.is_dir():  # better known now than after a minute of timing
        raise InvalidConfig(f"{options.out}: cannot be written: no such folder")
    from chairlift.build import find_model, load

    # Host blocks are wanted for timing them, whatever the settings do about preemption.
    model = find_model(replace(settings, preemption="swap"))
    loaded = load(model)
    from chairlift.sim.calibration.calibrate import calibrate, profile_of

    with _progress() as watch:
        found = calibrate(loaded.runner, loaded.limits, loaded.num_host_blocks, options.quick, watch)
    profile = profile_of(options.out.stem, model.name, model.config, loaded, found)
    profile.write(options.out)
    print(f"{profile.model} on {profile.device}, {profile.dtype}: {profile.note}")
    print(f"wrote {options.out}")
    return 0


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    with tqdm(unit=" steps", leave=False) as bar:

        def watch(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield watch
