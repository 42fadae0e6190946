"""`chairlift node`: engines for a server on another machine."""

import argparse

from chairlift.cli.inputs.flags import add_model_argument, add_option_flags, settings_from
from chairlift.config.options.node import NODE_OPTIONS
from chairlift.config.options.resolve import OPTIONS

HELP = "compute for a server on another machine"
DESCRIPTION = "Run engines without HTTP that answer the requests of `chairlift serve --cluster` on another machine."
USAGE = "[MODEL] --join HOST:PORT [options]"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    without = {option.name for option in OPTIONS if option not in NODE_OPTIONS}
    add_option_flags(parser, "nodes", "model", "engine", "replicas", "server", without=without)


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    from chairlift.serving.node import run_node

    return run_node(settings)
