"""`chairlift verify`: whether what comes out is what should, with an exit code: 0 pass, 1 fail, 2 proves nothing."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.flags import add_option_flags, settings_from, show_warnings
from chairlift.cli.prompts import gather
from chairlift.cli.simulate import number
from chairlift.config.values import new_file, whole
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.config.settings import Settings
    from chairlift.verify.opened import PromptSpec
    from chairlift.verify.report import VerifyReport

_EPILOG = """\
exit codes: 0 pass; 1 fail; 2 proves nothing (a control found no difference,
or there was too little to compare, or a mistake in what was asked)

examples:
  chairlift verify --against reference           logits against references that
                                                 compute each text alone
  chairlift verify --against batch --exact       each request alone against the
                                                 same request among others
  chairlift verify --save before                 store what comes out, and later:
  chairlift verify --against before              what has changed since?
"""
_COMMANDS = ("reference", "batch")


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help="check logits against references, batches or a stored run",
        description="Check what a model gives: against references, alone against among others, or against what was "
        "stored. docs/verify.md says what is compared and how the files look.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", metavar="WHAT", help="reference, batch, or the folder of a stored run")
    what.add_argument("--save", type=Path, metavar="DIR", help="store the run in this new folder")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="one per line, or JSON lines (default: built in)")
    parser.add_argument("--num-prompts", metavar="N", default="6", help="of the built-in ones (default: %(default)s)")
    parser.add_argument("--tokens", metavar="N", default="12", help="generated for each prompt (default: %(default)s)")
    parser.add_argument("--seed", metavar="N", default="0", help="of everything that is drawn (default: %(default)s)")
    parser.add_argument("--url", metavar="URL", help="ask this server instead, by log-probabilities")
    parser.add_argument("--control-url", metavar="URL", help="with --url and batch: a server without --exact")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    add_option_flags(parser, "model", "engine")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    show_warnings(settings)
    out = None if options.json is None else number(options, "json", new_file)
    _check(options)
    from chairlift.build import let_threads_sleep

    let_threads_sleep()
    from chairlift.verify.opened import PromptSpec

    spec = PromptSpec(
        prompts=None if options.prompts is None else gather([], options.prompts),
        num_prompts=number(options, "num_prompts", whole(1, 100_000)),
        num_tokens=number(options, "tokens", whole(1, 1_000_000)),
        seed=number(options, "seed", whole(0)),
    )
    with _progress() as watch:
        report = _verify(options, settings, spec, watch)
    print(report.to_text())
    if out is not None:
        _write(out, report)
    return report.verdict.exit_code


def _verify(
    options: argparse.Namespace, settings: "Settings", spec: "PromptSpec", watch: Callable[[str, int, int], None]
) -> "VerifyReport":
    if options.against == "reference":
        from chairlift.verify.reference import against_reference

        return against_reference(settings, spec, watch)
    if options.against == "batch":
        if options.url is not None:
            from chairlift.verify.batch_served import against_served_batch

            return against_served_batch(options.url, options.control_url, settings.exact, spec, watch)
        from chairlift.verify.batch import against_batch

        return against_batch(settings, spec, watch)
    from chairlift.verify.store import against_folder, save
    from chairlift.verify.subject import LocalSubject, ServedSubject

    watch("loading", 0, 0)
    subject = LocalSubject(settings) if options.url is None else ServedSubject(options.url)
    if options.save is not None:
        return save(options.save, subject, spec, watch)
    return against_folder(Path(options.against), subject, spec, watch)


def _check(options: argparse.Namespace) -> None:
    """What is known to be wrong before anything is loaded."""
    if options.url is not None and options.against == "reference":
        raise InvalidConfig("--url: a server gives log-probabilities, not logits; a reference is compared with a model")
    if options.control_url is not None and (options.url is None or options.against != "batch"):
        raise InvalidConfig("--control-url: is for --against batch of a server; give --url too")
    if options.save is not None:
        from chairlift.verify.baseline import check_new

        check_new(options.save)
    elif options.against not in _COMMANDS and not Path(options.against).is_dir():
        what = "reference, batch or the folder of a stored run"
        raise InvalidConfig(f"--against must be {what}, got {options.against!r}, which is no folder")


def _write(path: Path, report: "VerifyReport") -> None:
    try:
        path.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """On a terminal: what is under way and how far."""
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from tqdm import tqdm

    with tqdm(unit=" parts", leave=False, bar_format="{desc}: {n_fmt}/{total_fmt} [{elapsed}]") as bar:

        def watch(name: str, done: int, total: int) -> None:
            bar.total, bar.n = total or 1, done
            bar.set_description_str(name)

        yield watch
