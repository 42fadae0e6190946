"""The command line: picks the subcommand and turns a user's mistake into one line and exit code 2.

Neither this module nor a command's module imports anything heavy, so help and mistakes are quick.
"""

import argparse
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module

from chairlift.config.options.values import did_you_mean
from chairlift.config.version import VERSION
from chairlift.core.errors import ChairliftError

# In the order of the help. Each is a module of this package with HELP, DESCRIPTION, perhaps EPILOG, add_flags and run.
_COMMANDS = (
    "serve", "node", "cluster-key", "chat", "generate", "plan", "bench", "contest", "simulate", "calibrate", "compare",
    "tune", "trace", "explain", "replay", "verify", "convert", "models", "policies", "doctor",
)  # fmt: skip
_DESCRIPTION = """\
Serve a language model over HTTP, or use one in this terminal; without --model,
the small one that is installed with it."""
_EPILOG = """\
examples:
  chairlift serve --model Qwen/Qwen3-0.6B   a model from the Hugging Face hub
  chairlift COMMAND --help                  the options of a command

Every option can also be set in a YAML file (--config) or in the environment
(CHAIRLIFT_MAX_RUNNING for --max-running); a flag wins over both.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        flags = re.findall(r"--[a-z-]+", options.command.format_usage())
        close = did_you_mean(unknown[0].partition("=")[0], flags, "--")
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{close}")
    if logging.lastResort is not None:  # where no logging was set up, as a server does
        logging.lastResort.setFormatter(_CommandLines())
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
        # The reader of the output is gone; without this Python complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


class _CommandLines(logging.Formatter):
    """Log lines as a command prints its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return f"chairlift: {record.levelname.lower()}: {line}" if record.name.startswith("chairlift") else line


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="chairlift", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=raw, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"chairlift {VERSION}", help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in _COMMANDS:
        module = import_module(f"chairlift.cli.{name.replace('-', '_')}")
        epilog = getattr(module, "EPILOG", "")
        style = raw if "\n" in epilog else argparse.HelpFormatter
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.DESCRIPTION,
            epilog=epilog,
            formatter_class=style,
            allow_abbrev=False,
        )
        module.add_flags(command)
        command.set_defaults(run=module.run, command=command)
    return parser
