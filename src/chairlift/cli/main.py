"""The command line: picks the subcommand and turns a user's mistake into one line and exit code 2.

Nothing heavy is imported here or by the subcommand files at import time, so that help and mistakes are quick.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence

from chairlift.cli import (
    bench,
    calibrate,
    chat,
    compare,
    contest,
    doctor,
    explain,
    generate,
    plan,
    policies,
    replay,
    serve,
    simulate,
    trace,
    tune,
    verify,
)
from chairlift.config.options import did_you_mean
from chairlift.config.version import VERSION
from chairlift.core.errors import ChairliftError

_DESCRIPTION = """\
Serve a language model over HTTP, or talk to one here. Without --model, it is
a small one that comes along."""
_EPILOG = """\
examples:
  chairlift serve --model Qwen/Qwen3-0.6B   a model from the Hugging Face hub
  chairlift COMMAND --help                  the options of a command

Every option can also stand in a YAML file (--config) or in the environment
(CHAIRLIFT_MAX_RUNNING for --max-running); a flag wins over both.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        flags = re.findall(r"--[a-z-]+", options.command.format_usage())
        close = did_you_mean(unknown[0].partition("=")[0], flags, "--")
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{close}")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except ChairliftError as error:
        print(f"chairlift: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output is gone; without this Python complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="chairlift",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"chairlift {VERSION}", help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (
        serve,
        chat,
        generate,
        plan,
        bench,
        contest,
        simulate,
        calibrate,
        compare,
        tune,
        trace,
        explain,
        replay,
        verify,
        policies,
        doctor,
    ):
        command.add_command(commands)
    for subparser in commands.choices.values():
        subparser.set_defaults(command=subparser)
    return parser
