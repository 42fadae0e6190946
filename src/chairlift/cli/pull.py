"""`chairlift pull`: a model of the hub, downloaded before it is needed."""

import argparse
from pathlib import Path

from chairlift.cli.inputs.flags import add_option_flags, settings_from
from chairlift.cli.inputs.text import size
from chairlift.config.options.resolve import OPTIONS
from chairlift.core.errors import InvalidConfig

HELP = "download a model from the Hugging Face hub"
DESCRIPTION = "Download a model from the Hugging Face hub, to be served later. A download that was broken off goes on."
USAGE = "MODEL [options]"
NOT_PLACES = frozenset(option.name for option in OPTIONS) - {"revision", "download_dir"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="MODEL", help="hub name: ORG/NAME, or ORG/NAME:QUANT for one GGUF file")
    add_option_flags(parser, "model", without=NOT_PLACES)


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    if Path(options.name).expanduser().exists():
        raise InvalidConfig(f"{options.name} is on this machine; serve it as it is: chairlift serve {options.name}")
    from chairlift.models.files.hub import Place
    from chairlift.models.source import locate

    source = locate(options.name, place=Place(settings.revision, settings.download_dir))
    files = [source.path] if source.path.is_file() else [path for path in source.path.rglob("*") if path.is_file()]
    print(f"{options.name}: {size(sum(path.stat().st_size for path in files))} in {source.path}")
    print(f"serve it: chairlift serve {options.name}")
    return 0
