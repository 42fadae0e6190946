"""`chairlift rm`: removes downloaded models."""

import argparse

from chairlift.cli.inputs.flags import add_option_flags, settings_from
from chairlift.cli.inputs.text import size
from chairlift.cli.pull import NOT_PLACES

HELP = "remove downloaded models"
DESCRIPTION = "Remove models that were downloaded from the Hugging Face hub; `chairlift list` names them."
USAGE = "MODEL [MODEL ...] [options]"


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="+", metavar="MODEL", help="ORG/NAME with all of its files, or ORG/NAME:QUANT for one GGUF file"
    )
    add_option_flags(parser, "model", without={*NOT_PLACES, "revision"})


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    from chairlift.models.files.stored import remove

    for name in options.names:
        print(f"removed {name}, {size(remove(name, settings.download_dir))}")
    return 0
