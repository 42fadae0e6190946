"""`chairlift contest --accuracy`: the contest's accuracy set through the gate of `chairlift verify`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from chairlift.cli.contest_prompts import gather
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.config.settings import Settings


def add_flags(parser: argparse.ArgumentParser) -> None:
    section = parser.add_argument_group("accuracy", "The model is run here; nothing is sent to a server.")
    section.add_argument(
        "--accuracy", action="store_true", help="store or compare the logits of the first 500 prompts of --data"
    )
    section.add_argument("--save", type=Path, metavar="DIR", help="store them in this new folder")
    section.add_argument("--against", type=Path, metavar="DIR", help="compare with this folder, ours or the contest's")


def refuse_flags(options: argparse.Namespace) -> None:
    if options.save is not None or options.against is not None:
        raise InvalidConfig("--save and --against are for --accuracy")


def run(options: argparse.Namespace, settings: "Settings") -> int:
    if (options.save is None) == (options.against is None):
        raise InvalidConfig("--accuracy: give a new folder with --save, or one to compare with with --against")
    from chairlift.build import let_threads_sleep

    let_threads_sleep()
    from chairlift.contest.accuracy import NUM_PROMPTS, ContestSubject
    from chairlift.verify.baseline import check_new
    from chairlift.verify.opened import PromptSpec
    from chairlift.verify.store import against_folder, save

    if options.save is not None:
        check_new(options.save)
    elif not options.against.is_dir():
        raise InvalidConfig(f"--against {options.against}: no such folder")
    prompts, _ = gather(options, settings, NUM_PROMPTS)
    judged, spec = ContestSubject(settings, prompts), PromptSpec(prompts=[text for text, _ in prompts])
    if options.save is not None:
        report = save(options.save, judged, spec, _nothing)
    else:
        report = against_folder(options.against, judged, spec, _nothing)
    print(report.to_text())
    return report.verdict.exit_code


def _nothing(name: str, done: int, total: int) -> None:
    pass
