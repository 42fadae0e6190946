"""The command line: picks the subcommand and turns a user's mistake into one line and exit code 2.

Neither this module nor a command's module imports anything heavy, so help and mistakes are quick.
"""

import argparse
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import NoReturn

from chairlift.cli.commands import COMMANDS, CommandParser, ProgramParser, style
from chairlift.cli.inputs.flags import settings_from
from chairlift.config.options.foreign.table import by_flag, of_family
from chairlift.config.options.resolve import JSON, OPTIONS, InvalidOptions, option_named
from chairlift.config.options.values import did_you_mean
from chairlift.config.version import VERSION
from chairlift.core.errors import ChairliftError

_DESCRIPTION = """\
Serve a language model over HTTP, or use one in this terminal; without a MODEL,
the small one that is installed with it."""
_JSON_FLAGS = {option.flag for option in OPTIONS if option.hint == JSON}
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
    if given[0].startswith("-") and given[0] not in ("-h", "--help", "--version"):
        command = next((each for each in given if each in COMMANDS), "COMMAND")
        parser.error(f"{given[0]}: options follow the command: chairlift {command} {given[0]} ...")
    if not given[0].startswith("-") and given[0] not in COMMANDS:
        parser.error(f"{given[0]} is no command{did_you_mean(given[0], COMMANDS)}; `chairlift` alone lists them")
    end = given.index("--") if "--" in given else len(given)  # nothing after it is an option
    options, unknown = parser.parse_known_args([*_spelled(given[:end]), *given[end:]])
    if unknown:
        _refuse(options, unknown)
    if logging.lastResort is not None:  # where no logging was set up, as a server does
        logging.lastResort.setFormatter(_CommandLines())
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except ChairliftError as error:
        for mistake in error.mistakes if isinstance(error, InvalidOptions) else (str(error),):
            print(f"chairlift: error: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output is gone; without this Python complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _spelled(arguments: Sequence[str]) -> Iterator[str]:
    """--max_model_len as --max-model-len; --name.part VALUE as --name '{"part": VALUE}', and as --name VALUE where the
    option is ignored or refused."""
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            yield argument
            continue
        whole, dot, part = name.partition(".")
        flag = whole.replace("_", "-")
        foreign = by_flag(flag) if dot else None
        if dot and flag in _JSON_FLAGS:
            yield from (flag, _nested(part.split("."), value if equals else next(rest, "")))
        elif foreign is not None and not foreign.option:
            yield flag + equals + value
        else:
            yield name.replace("_", "-") + equals + value


def _nested(parts: Sequence[str], value: str) -> str:
    try:
        found = json.loads(value)
    except ValueError:
        found = value
    for part in reversed(parts):
        found = {part: found}
    return json.dumps(found)


def _refuse(options: argparse.Namespace, unknown: Sequence[str]) -> NoReturn:
    """Names every flag, those that are known and refused too; what follows one may be its value."""
    flags = [each.partition("=")[0] for each in unknown if re.match("--?[A-Za-z]", each)]
    if not flags:
        options.command.error(f"unrecognized arguments: {' '.join(unknown)}")
    mistakes = [_why_unknown(flag, options.command) for flag in dict.fromkeys(flags)]
    if "option_names" in options:
        options.which = None  # it may be a value of an unknown flag
        try:
            settings_from(options)
        except InvalidOptions as error:
            mistakes += error.mistakes
        except ChairliftError:  # known when the unknown ones are gone
            pass
    options.command.print_usage(sys.stderr)
    for mistake in mistakes:
        print(f"{options.command.prog}: error: {mistake}", file=sys.stderr)
    sys.exit(2)


def _why_unknown(flag: str, command: CommandParser) -> str:
    foreign = by_flag(flag)
    if foreign is None:
        advice = of_family(flag)
        close = did_you_mean(flag, command.shown_flags, "--")
        return f"{flag}: {advice}" if advice is not None else f"unrecognized option: {flag}{close}"
    if foreign.option:
        return f"{flag}: is {option_named(foreign.option).flag}, which this command has not"
    return f"{flag}: {foreign.note}"


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
