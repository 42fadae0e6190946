"""`chairlift tune`: the settings that suit a workload, found in the simulator and checked by real runs."""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.inputs.flags import (
    add_model_argument,
    add_option_flags,
    parsed,
    positive,
    progress,
    warned_model,
    warned_settings,
    writing,
)
from chairlift.cli.inputs.workload import add_request_flags, items_from
from chairlift.config.extras import check_extra
from chairlift.config.options.resolve import DEFAULTS
from chairlift.config.options.values import whole
from chairlift.config.settings import Settings
from chairlift.core.errors import ChairliftError, InvalidConfig

if TYPE_CHECKING:
    from chairlift.build import ResolvedModel
    from chairlift.lab.sim.profile import Profile
    from chairlift.lab.tune.report import TuneReport
    from chairlift.lab.tune.search import Search
    from chairlift.lab.tune.tuning import Tuning
    from chairlift.lab.tune.verify import Verification

HELP = "find the settings that suit a workload"
DESCRIPTION = (
    "Search scheduling rules and limits for a workload in the simulator, run the best few for real, and write a YAML "
    "for serve --config with a report. Options given below are not varied."
)
USAGE = "[MODEL] --workload FILE [options]"
EPILOG = "exit codes: 0 found; 1 no setting meets --slo; 2 a mistake; 130 interrupted, what was found is written"
_CALIBRATION_SHARE = 0.2  # of the time
_SEARCH_SHARE = 0.5  # of what is left then; the rest is for real runs
_REACH = 2  # the search goes up to this many times the usual requests and tokens of a step


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_request_flags(parser)
    parser.add_argument(
        "--profile", metavar="FILE", help="profile: a file or a built-in name (default: calibrate the model here)"
    )
    parser.add_argument(
        "--slo", metavar="LIMITS",
        help="limits to meet: ttft, tpot, e2e or queue of each request, or with _mean, _p50, _p90 or _p99, as in "
        "ttft_p99=500ms,tpot_p50=30ms",
    )  # fmt: skip
    parser.add_argument("--minutes", default="5", metavar="M", help="minutes to take, about (default: %(default)s)")
    parser.add_argument("--no-verify", action="store_true", help="simulate only")
    parser.add_argument(
        "--out", type=Path, default=Path("chairlift-tune"), metavar="FOLDER",
        help="folder for tuned.yaml, tune.html, tune.md, tune.svg and tune.json (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the JSON of tune.json instead of a summary")
    add_option_flags(parser, "engine", "replicas", "model", without=("tokenizer",))


def run(options: argparse.Namespace) -> int:
    check_extra("tune", "tune")
    settings = warned_settings(options)
    from chairlift.lab.tune.evaluate import Work
    from chairlift.lab.tune.knobs import knobs_of
    from chairlift.lab.tune.report import TuneReport
    from chairlift.lab.tune.targets import Targets
    from chairlift.lab.tune.tuning import Tuning
    from chairlift.lab.tune.verify import plan
    from chairlift.lab.workload.arrivals import parse_arrivals

    seconds = 60.0 * parsed(options, "minutes", positive)
    ends = time.monotonic() + seconds
    targets = None if options.slo is None else Targets.parse(options.slo)
    parse_arrivals(options.arrivals)
    items = tuple(items_from(options))
    _check_folder(options.out)
    fixed = {name for name, value in DEFAULTS.items() if name in settings.given or getattr(settings, name) != value}
    if settings.num_blocks is not None:
        fixed.add("block_size")  # as many blocks, but larger, would be more memory
    profiles, model, unverified = _profiles(options, settings, "threads" in fixed, _CALIBRATION_SHARE * seconds)
    profile = next(iter(profiles.values()))
    knobs = knobs_of(settings, profile, items, list(profiles) if len(profiles) > 1 else (), fixed)
    work = Work(settings, profiles, items, options.arrivals, parsed(options, "seed", whole(0)), targets)
    tuning = Tuning(work, knobs, (1.0 if unverified else _SEARCH_SHARE) * max(1.0, ends - time.monotonic()))
    verification, is_partial = None, False
    try:
        with progress(_advance, unit=" settings") as watch:
            tuning.run(_say, watch)
        if model is not None and not unverified:
            verification = plan(tuning.work, tuning.goal, tuning.candidates, ends - time.monotonic())
            unverified = _verify(tuning, verification, model)
    except KeyboardInterrupt:
        if tuning.default is None:
            raise
        is_partial = True
    about = f"{profile.name} ({profile.model} on {profile.device})"
    name = Path(options.workload).name
    return _conclude(options, TuneReport(tuning, name, about, options.arrivals, verification, unverified, is_partial))


def _profiles(
    options: argparse.Namespace, settings: Settings, has_threads: bool, seconds: float
) -> "tuple[dict[int, Profile], ResolvedModel | None, str]":
    """The model's profile for each number of threads, the model where it was needed, and why nothing will be measured,
    if so."""
    from chairlift.build import let_threads_sleep

    let_threads_sleep()
    unverified = "--no-verify was given" * options.no_verify
    if settings.replicas > 1:
        unverified = unverified or "real runs are of one engine, and --replicas was given"
    if options.profile is None:
        model = warned_model(settings)
        return _calibrated(model, has_threads, seconds), model, unverified
    from chairlift.lab.sim.profile import load_profile

    profile = load_profile(options.profile)
    if settings.model is None and options.no_verify:
        return {0: profile}, None, unverified
    model = warned_model(settings)
    if settings.model is not None:
        profile.check_model(model.name)
    return {0: profile}, model, unverified or _why_not(profile, model)


def _why_not(profile: "Profile", model: "ResolvedModel") -> str:
    """Why a profile cannot be measured here; empty if it is of this model and machine."""
    from chairlift.lab.tune.real import device_here, is_same_device

    if model.name != profile.model:
        return f"the profile is of {profile.model}, and without --model the model here is {model.name}"
    here = device_here()
    return "" if is_same_device(profile.device, here) else f"the profile is of {profile.device}, and this is {here}"


def _calibrated(model: "ResolvedModel", has_threads: bool, seconds: float) -> "dict[int, Profile]":
    from chairlift.lab.tune.real import calibrated, in_own_process
    from chairlift.runner.machine import hardware

    counts = [0]
    if hardware.pick_device(model.settings.device).type == "cpu" and not has_threads:
        cores = hardware.num_cpus()
        counts = [count for count in (cores, cores // 2, cores // 4) if count]
    profiles = {}
    for count in counts:
        _say("calibrating" + (f" with {count} thread{'s' * (count > 1)}" if count else ""))
        asked = model.under(replace(model.settings, threads=count)) if count else model
        profiles[count] = in_own_process(calibrated, asked, _REACH, seconds / len(counts))
    return profiles


def _verify(tuning: "Tuning", verification: "Verification", model: "ResolvedModel") -> str:
    """Why not everything was measured; a failed run does not lose what was found."""
    from chairlift.lab.tune.verify import carry_out

    try:
        carry_out(verification, model, _say)
    except ChairliftError as error:
        return f"a real run failed: {error}"
    if tuning.pick is not None:
        tuning.choose(verification.best(tuning.pick.choice).choice)
    return ""


def _conclude(options: argparse.Namespace, found: "TuneReport") -> int:
    from chairlift.lab.tune.files import write, yaml_of

    with writing(options.out):
        paths = write(found, options.out)
    text = yaml_of(found)
    said = "\n".join([found.verdict(), *found.notes()]).replace("`", "")
    print(json.dumps(found.to_json(text)) if options.json else f"{said}\n\n{text}")
    _say(f"wrote {', '.join(map(str, paths))}")
    if found.is_partial:
        return 130
    tuning = found.tuning
    return 0 if tuning.pick is not None and tuning.goal.meets(tuning.pick) else 1


def _check_folder(folder: Path) -> None:
    """Refused before minutes of searching."""
    if folder.exists() and not folder.is_dir():
        raise InvalidConfig(f"--out {folder}: is a file, not a folder")
    if not folder.absolute().parent.is_dir():
        raise InvalidConfig(f"--out {folder}: cannot be written: there is no folder to make it in")


def _advance(bar: Any, search: "Search") -> None:
    bar.update(search.num_done - bar.n)
    if search.best is not None:
        bar.set_postfix_str(f"best {search.best.point.throughput:.0f} tokens/s", refresh=False)


def _say(text: str) -> None:
    from tqdm import tqdm

    tqdm.write(f"chairlift: {text}", file=sys.stderr)  # above a bar, if there is one
    sys.stderr.flush()
