"""`chairlift verify`: whether a model's logits are right, as an exit code: 0 pass, 1 fail, 2 proves nothing."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chairlift.cli.inputs.flags import (
    add_model_argument,
    add_option_flags,
    flags_of,
    parsed,
    progress,
    warned_model,
    warned_settings,
    writing,
)
from chairlift.cli.inputs.prompts import gather
from chairlift.config.options.values import check_new, new_file, whole
from chairlift.core.errors import InvalidConfig

if TYPE_CHECKING:
    from chairlift.build import ResolvedModel
    from chairlift.lab.verify.opened import PromptSpec
    from chairlift.lab.verify.report import VerifyReport

HELP = "check logits against references, batches or a stored run"
DESCRIPTION = """\
Check a model's logits: against references, alone against in a batch, or against
a stored run. docs/verify.md says what is compared and how the files look."""
USAGE = "[MODEL] (--against WHAT | --save DIR) [options]"
EPILOG = """\
exit codes: 0 pass; 1 fail; 2 proves nothing (a control found no difference,
there was too little to compare, or the command had a mistake)

examples:
  chairlift verify --against reference           logits against references that
                                                 compute each text alone
  chairlift verify --against batch --exact       each request alone against the
                                                 same request in a batch
  chairlift verify --against batch --exact --lora-dir adapters
                                                 the same with adapters in turn
  chairlift verify --save before                 store the logits, and later:
  chairlift verify --against before              whether they have changed
"""
_COMMANDS = ("reference", "batch")


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", metavar="WHAT", help="compare with: reference, batch, or a stored run's folder")
    what.add_argument("--save", type=Path, metavar="DIR", help="store the run in this new folder")
    parser.add_argument(
        "--prompts", type=Path, metavar="FILE", help="prompts, one per line or JSON lines (default: built in)"
    )
    parser.add_argument(
        "--num-prompts", metavar="N", default="6", help="built-in prompts to use (default: %(default)s)"
    )
    parser.add_argument(
        "--tokens", metavar="N", default="12", help="tokens to generate per prompt (default: %(default)s)"
    )
    parser.add_argument("--seed", metavar="N", default="0", help="seed of all random draws (default: %(default)s)")
    parser.add_argument("--url", metavar="URL", help="check this server instead, by log-probabilities")
    parser.add_argument("--logits", type=Path, metavar="DIR", help="logits of --url: its folder of --save-logits")
    parser.add_argument(
        "--adapters", nargs="+", default=(), metavar="NAME", help="adapters of --url to ask for in turn with its model"
    )
    parser.add_argument("--control-url", metavar="URL", help="server without --exact, for --url and batch")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    add_option_flags(parser, "model", "engine")


def run(options: argparse.Namespace) -> int:
    settings = warned_settings(options)
    out = parsed(options, "json", new_file)
    _check(options)
    from chairlift.build import let_threads_sleep

    let_threads_sleep()
    model = warned_model(settings) if options.url is None else None
    from chairlift.lab.verify.opened import PromptSpec

    spec = PromptSpec(
        prompts=None if options.prompts is None else gather([], options.prompts),
        num_prompts=parsed(options, "num_prompts", whole(1, 100_000)),
        num_tokens=parsed(options, "tokens", whole(1, 1_000_000)),
        seed=parsed(options, "seed", whole(0)),
    )
    with progress(_advance, unit=" parts", bar_format="{desc}: {n_fmt}/{total_fmt} [{elapsed}]") as watch:
        report = _verify(options, model, settings.exact, spec, watch or (lambda *_: None))
    print(report.to_text())
    if out is not None:
        with writing(out):
            out.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    return report.verdict.exit_code


def _verify(
    options: argparse.Namespace, model: "ResolvedModel | None", is_exact: bool, spec: "PromptSpec",
    watch: Callable[[str, int, int], None],
) -> "VerifyReport":  # fmt: skip
    """model: None: that of --url"""
    adapters = tuple(dict.fromkeys(options.adapters))
    if options.against == "reference":
        from chairlift.lab.verify.reference import against_reference

        assert model is not None
        return against_reference(model, spec, watch)
    if options.against == "batch":
        if model is None:
            from chairlift.lab.verify.batch_served import against_served_batch

            return against_served_batch(options.url, options.control_url, is_exact, spec, watch, adapters)
        from chairlift.lab.verify.batch import against_batch

        return against_batch(model, spec, watch)
    from chairlift.lab.verify.store import against_folder, save
    from chairlift.lab.verify.subject import LocalSubject, ServedSubject

    watch("loading", 0, 0)
    subject = ServedSubject(options.url, options.logits, adapters) if model is None else LocalSubject(model)
    if options.save is not None:
        return save(options.save, subject, spec, watch)
    return against_folder(Path(options.against), subject, spec, watch)


def _check(options: argparse.Namespace) -> None:
    """Refuses mistakes before anything is loaded."""
    if options.url is not None and options.against == "reference":
        raise InvalidConfig("--url: a server gives log-probabilities, not logits; a reference is compared with a model")
    if options.adapters and options.url is None:
        raise InvalidConfig(
            "--adapters: names adapters of a server; give --url too, or --lora NAME=PATH for a model here"
        )
    given = flags_of(options)
    if options.url is not None and (given.get("lora") or given.get("lora_dir")):
        raise InvalidConfig("--lora: a server has its own adapters; name them with --adapters, or leave --url out")
    if options.control_url is not None and (options.url is None or options.against != "batch"):
        raise InvalidConfig("--control-url: is for --against batch of a server; give --url too")
    if options.logits is not None and (options.url is None or options.against in _COMMANDS):
        raise InvalidConfig("--logits: is for --url with --save or --against a folder")
    if options.save is not None:
        check_new(options.save, "--save")
    elif options.against not in _COMMANDS and not Path(options.against).is_dir():
        what = "reference, batch or the folder of a stored run"
        raise InvalidConfig(f"--against must be {what}, got {options.against!r}, which is no folder")


def _advance(bar: Any, name: str, done: int, total: int) -> None:
    bar.total, bar.n = total or 1, done
    bar.set_description_str(name)
