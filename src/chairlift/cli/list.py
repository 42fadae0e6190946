"""`chairlift list`: the models on this machine."""

import argparse
import json
from datetime import datetime

from chairlift.cli.inputs.flags import add_option_flags, settings_from
from chairlift.cli.inputs.text import size
from chairlift.cli.pull import NOT_PLACES

HELP = "list the downloaded models"
DESCRIPTION = "List the models of the Hugging Face hub that are stored on this machine, by any program."


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON list instead of a table")
    add_option_flags(parser, "model", without={*NOT_PLACES, "revision"})


def run(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    from chairlift.models.files.stored import stored_models

    models = stored_models(settings.download_dir)
    if options.json:
        print(json.dumps([{"name": model.name, "bytes": model.size, "used": model.used} for model in models]))
    elif not models:
        print("no models are stored; download one: chairlift pull ORG/NAME")
    else:
        rows = [(model.name, size(model.size), f"{datetime.fromtimestamp(model.used):%Y-%m-%d}") for model in models]
        width = max(len("model"), *(len(name) for name, _, _ in rows))
        for name, amount, day in (("model", "size", "last used"), *rows):
            print(f"{name:<{width}}  {amount:>10}  {day}")
    return 0
