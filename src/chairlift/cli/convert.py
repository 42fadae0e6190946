"""`chairlift convert`: a MindSpore checkpoint as a folder of safetensors."""

import argparse
from pathlib import Path
from typing import Any

from chairlift.cli.inputs.flags import parsed, progress, warn
from chairlift.config.options.values import check_new, existing_path
from chairlift.core.errors import InvalidConfig

HELP = "turn a MindSpore checkpoint into safetensors"
DESCRIPTION = (
    "Turn a MindSpore checkpoint, whole or sharded, into a folder of safetensors with config.json and the tokenizer's "
    "files, which other programs read too. Serving needs no conversion."
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help=".ckpt file, or folder with one or with rank_0, rank_1, ...")
    parser.add_argument("target", type=Path, metavar="TARGET", help="new folder")
    what = "MindFormers YAML or JSON that describes the model (default: config.json or the YAML beside the weights)"
    parser.add_argument("--model-cfg", metavar="FILE", help=what)


def run(options: argparse.Namespace) -> int:
    from chairlift.models.source import load_model_config, locate

    model_cfg, target = parsed(options, "model_cfg", existing_path), options.target
    source = locate(options.source, model_cfg=model_cfg)
    if source.kind != "ckpt":
        raise InvalidConfig(f"{options.source}: is no MindSpore checkpoint; it needs no conversion")
    check_new(target, "TARGET")
    config = load_model_config(source)
    warn(config.warnings)
    from chairlift.runner.weights.convert import convert

    with progress(_advance, unit="B", unit_scale=True) as watch:
        copied = convert(source, config, target, watch or (lambda *_: None))
    if not {"tokenizer.json", "tokenizer.model"} & set(copied):
        warn([f"{source.folder}: no tokenizer there; copy one into {target}"])
    print(f"{target}: {config.architecture} with {config.num_layers} layers; serve it with --model {target}")
    return 0


def _advance(bar: Any, done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)
