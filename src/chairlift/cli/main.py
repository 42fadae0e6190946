"""The command line: picks the subcommand and turns a user's mistake into one line and exit code 2.

Neither this module nor a command's module imports anything heavy, so help and mistakes are quick.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from chairlift.cli.commands import COMMANDS, CommandParser, ProgramParser, style
from chairlift.config.options.foreign.table import by_flag
from chairlift.config.options.resolve import option_named
from chairlift.config.options.values import did_you_mean
from chairlift.config.version import VERSION
from chairlift.core.errors import ChairliftError

_DESCRIPTION = """\
Serve a language model over HTTP, or use one in this terminal; without a MODEL,
the small one that is installed with it."""
_EPILOG = """\
examples:
  chairlift serve Qwen/Qwen3-0.6B   serve a model from the Hugging Face hub
  chairlift COMMAND --help          show the options of a command

Options can also be set in the environment (CHAIRLIFT_MAX_RUNNING for
--max-running) or in a YAML file (--config). A flag wins over both, the
environment over the file.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        parser.print_help()
        return 0
    if not given[0].startswith("-") and given[0] not in COMMANDS:
        parser.error(f"{given[0]} is no command{did_you_mean(given[0], COMMANDS)}; `chairlift` alone lists them")
    end = given.index("--") if "--" in given else len(given)  # nothing after it is an option
    options, unknown = parser.parse_known_args([*map(_dashed, given[:end]), *given[end:]])
    if unknown:
        _refuse(options.command, unknown)
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


def _dashed(argument: str) -> str:
    """--max_model_len as --max-model-len."""
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument


def _refuse(command: CommandParser, unknown: Sequence[str]) -> None:
    """Names the first flag alone: what follows it may be its value."""
    flags = [each.partition("=")[0] for each in unknown if each.startswith("-")]
    if not flags:
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    foreign = by_flag(flags[0])
    if foreign is not None and not foreign.option:
        command.error(f"{flags[0]}: {foreign.note}")
    if foreign is not None:
        command.error(f"{flags[0]}: is {option_named(foreign.option).flag}, which this command has not")
    command.error(f"unrecognized option: {flags[0]}{did_you_mean(flags[0], command.shown_flags, '--')}")


class _CommandLines(logging.Formatter):
    """Log lines as a command prints its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return f"chairlift: {record.levelname.lower()}: {line}" if record.name.startswith("chairlift") else line


def _parser() -> argparse.ArgumentParser:
    parser = ProgramParser(
        prog="chairlift", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=style(True), allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"chairlift {VERSION}", help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
    for name, path in COMMANDS.items():
        module = import_module(f"chairlift.cli.{path}")
        epilog, usage = getattr(module, "EPILOG", ""), getattr(module, "USAGE", None)
        command = commands.add_parser(
            name,
            help=module.HELP,
            usage=None if usage is None else f"chairlift {name} {usage}",
            description=module.DESCRIPTION,
            epilog=epilog,
            formatter_class=style("\n" in epilog),
            allow_abbrev=False,
        )
        module.add_flags(command)
        command.set_defaults(run=module.run, command=command, program=parser)
        parser.summaries[name] = module.HELP
    return parser
