"""The command line's parser, built once a process and not for each command: that takes longer than most of them.

Put in place where this is imported, before tests import `main`.
"""

from argparse import ArgumentParser
from functools import cache

import chairlift.cli.main as command_line
from chairlift.cli.commands import style

_build = command_line._parser


@cache
def _parser_of(look: object) -> ArgumentParser:
    return _build()


def forget() -> None:
    """After a command that changed its parser."""
    _parser_of.cache_clear()


# How help pages look is asked for when the parser is built.
command_line._parser = lambda: _parser_of(style(True))
