"""`chairlift serve`: the HTTP server."""

import argparse
from typing import Any

from chairlift.cli.flags import add_option_flags, settings_from


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        help="answer over HTTP (OpenAI and llm-serving APIs)",
        description="Serve a model over HTTP.",
        allow_abbrev=False,
    )
    add_option_flags(parser, "model", "server", "engine", "record")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    from chairlift.serving.parent import serve

    return serve(settings, look=lambda: settings_from(options))
