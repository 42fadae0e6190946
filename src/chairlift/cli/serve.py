"""`chairlift serve`: the HTTP server."""

import argparse

from chairlift.cli.inputs.flags import add_model_argument, add_option_flags, settings_from

HELP = "serve a model over HTTP (OpenAI, Anthropic, llm-serving APIs)"
DESCRIPTION = "Serve a model over HTTP."
USAGE = "[MODEL] [options]"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_option_flags(parser, "model", "server", "engine", "replicas", "nodes", "record", without=("join", "address"))


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    from chairlift.serving.parent import serve

    return serve(settings, look=lambda: settings_from(options))
