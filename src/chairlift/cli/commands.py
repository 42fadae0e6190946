"""The commands by group, and the parsers that show them: one help page for all, one for each.

Each command is a module with HELP, DESCRIPTION, perhaps USAGE and EPILOG, add_flags and run.
"""

import argparse
import os
import sys
from collections.abc import Mapping

# In the order of the help: group, then command and its module.
GROUPS: Mapping[str, Mapping[str, str]] = {
    "serve and talk": {
        "serve": "serve",
        "chat": "chat",
        "generate": "generate",
        "batch": "batch",
        "node": "node",
        "cluster-key": "cluster_key",
    },
    "models": {
        "pull": "pull",
        "list": "list",
        "rm": "rm",
        "plan": "plan",
        "models": "models",
        "convert": "convert",
    },
    "measure": {"bench": "bench", "contest": "contest", "verify": "verify"},
    "lab": {
        "simulate": "lab.simulate",
        "compare": "lab.compare",
        "tune": "lab.tune",
        "calibrate": "lab.calibrate",
        "trace": "lab.trace",
        "explain": "lab.explain",
        "replay": "lab.replay",
        "policies": "lab.policies",
    },
    "this program": {"doctor": "doctor", "completion": "completion"},
}
COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}


def style(is_raw: bool) -> type[argparse.HelpFormatter]:
    """How help pages look: in colours on a terminal that wants them. `is_raw`: line breaks of descriptions and epilogs
    are kept."""
    plain = argparse.RawDescriptionHelpFormatter if is_raw else argparse.HelpFormatter
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return plain
    from rich_argparse import RawDescriptionRichHelpFormatter, RichHelpFormatter

    RichHelpFormatter.text_markup = RichHelpFormatter.help_markup = False  # brackets are brackets
    RichHelpFormatter.group_name_formatter = str
    return RawDescriptionRichHelpFormatter if is_raw else RichHelpFormatter


class ProgramParser(argparse.ArgumentParser):
    """Of the program: its help lists the commands by group."""

    def __init__(self, **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self.summaries: dict[str, str] = {}

    def format_help(self) -> str:
        page = self._get_formatter()
        page.add_text(self.description)
        for title, names in GROUPS.items():
            page.start_section(title)
            for name in names:
                page.add_argument(argparse.Action([], name, metavar=name, help=self.summaries[name]))
            page.end_section()
        page.add_text(self.epilog)
        return self.format_usage() + "\n" + page.format_help()


class CommandParser(argparse.ArgumentParser):
    """Of one command."""

    @property
    def shown_flags(self) -> list[str]:
        return [flag for action in self._actions if action.help != argparse.SUPPRESS for flag in action.option_strings]
