"""The reference of options and of commands, from the parsers of the command line."""

import argparse
import re
from collections.abc import Iterator, Mapping

from chairlift.cli.main import _parser
from chairlift.config.options.resolve import OPTIONS
from tables import Shared, code, plain, table

Row = tuple[str, str, str]
_COLUMNS = ("option", "default", "meaning")
_FLAGS = {option.flag for option in OPTIONS}
_OPTIONS_INTRO = """\
# Options

What `chairlift serve` and most other commands take. Each option has three names that follow from one:

| as a flag | in a YAML file (`--config FILE`) | in the environment |
|---|---|---|
| `--max-running 64` | `max_running: 64` | `CHAIRLIFT_MAX_RUNNING=64` |
| `--exact`, `--no-exact` | `exact: true` | `CHAIRLIFT_EXACT=1` |

A flag wins over the environment, the environment over the file. A name or a value that is not known is refused with
what is meant or allowed. Sizes are such as `512MiB`. Where no default is shown, there is none, or it follows from the
model and the device. In Python, `LLM(max_running=64)` takes them by their names in a file. [Commands](commands.md) have
options of their own, and [the command line](../command-line.md) is shown by example.
"""
_COMMANDS_INTRO = """\
# Commands

`chairlift COMMAND --help` shows the same. Most commands also take [options](options.md) that `serve` has; those are not
repeated here.
"""


def options_page() -> str:
    parts = [f"\n## {title.capitalize()}\n\n{table(_COLUMNS, rows)}" for title, rows in _sections().items()]
    return _OPTIONS_INTRO + "".join(parts)


def commands_page() -> str:
    titles = {row[0]: title for title, rows in _sections().items() for row in rows}
    shared = Shared("chairlift ")
    return _COMMANDS_INTRO + "".join(_command(name, parser, titles, shared) for name, parser in _commands().items())


def _sections() -> dict[str, list[Row]]:
    """The options by the groups in which serve and node show them."""
    sections: dict[str, list[Row]] = {}
    for name in ("serve", "node"):
        parser = _commands()[name]
        for title, actions in _groups(parser):
            rows = [_row(parser, action) for action in actions if _is_option(action)]
            if rows and title not in sections:
                sections[title] = rows
    return sections


def _command(name: str, parser: argparse.ArgumentParser, titles: Mapping[str, str], known: Shared) -> str:
    rows = [(action, _row(parser, action)) for _, actions in _groups(parser) for action in actions]
    own = [row for action, row in rows if not _is_option(action) and action.dest != "help"]
    shared = dict.fromkeys(titles[row[0]] for action, row in rows if _is_option(action) and row[0] in titles)
    text = f"\n## chairlift {name}\n\n{_sentence(parser.description or '')}\n"
    if own:
        new, others = known.split(name, own)
        text += (f"\n{table(_COLUMNS, new)}" if new else "") + others
    if shared:
        links = ", ".join(f"[{title}](options.md#{title.replace(' ', '-')})" for title in shared)
        text += f"\nOptions of serve: {links}.\n"
    return text


def _commands() -> dict[str, argparse.ArgumentParser]:
    [found] = [action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found.choices)


def _groups(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[argparse.Action]]]:
    for group in parser._action_groups:
        shown = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if shown:
            yield group.title or "", shown


def _is_option(action: argparse.Action) -> bool:
    return any(flag in _FLAGS for flag in action.option_strings)


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> Row:
    meaning = parser._get_formatter()._expand_help(action) if action.help else ""
    found = re.fullmatch(r"(.*?)(?: \(default: (.*)\))?", meaning, re.DOTALL)
    assert found is not None
    flags = ", ".join(flag for flag in action.option_strings if not flag.startswith("--no-"))
    return " ".join(filter(None, (code(flags), code(_value(action))))), plain(found[2] or ""), plain(found[1])


def _value(action: argparse.Action) -> str:
    """The shape of the value, as the help shows it; none for a switch."""
    if action.nargs == 0:
        return ""
    shape = action.metavar or action.dest.upper()
    return " ".join(shape) if isinstance(shape, tuple) else _spaced(shape)


def _spaced(shape: str) -> str:
    """Choices with room between them, so that a narrow column can break them."""
    return shape.strip("{}").replace(",", ", ") if shape.startswith("{") else shape


def _sentence(text: str) -> str:
    text = plain(text)
    return text if not text or text.endswith((".", ":")) else f"{text}."
