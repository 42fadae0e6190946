"""`chairlift models`: the families that can be served, in which files, and what the tests cover of each."""

import argparse
import json
from typing import Any

from chairlift.models.families.family import Family
from chairlift.models.families.known import FAMILIES
from chairlift.models.families.tested import BY_TRANSFORMERS, TESTED

HELP = "list the model families"
DESCRIPTION = "List the model families that can be served, the files they are read from and what the tests cover."
# But for ranks, which have a column.
_COVERED = {
    "twin": "logits equal transformers' in float64",
    "exact": "the same bits alone and among others",
    "gguf": "a GGUF file gives the logits of transformers",
    "ckpt": "a MindSpore checkpoint gives the logits of safetensors",
    "gpu": "a test on a GPU compares its captured steps with torch's operations",
}
_OTHERS = "most other causal models of transformers, slower (--model-impl transformers); tested"
_HEADS = ("architecture", "model_type", "files", "tested", "--tensor-parallel")


def add_flags(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    form.add_argument("--markdown", action="store_true", help="print a table for a page")


def run(options: argparse.Namespace) -> int:
    families = [_describe(family) for family in FAMILIES]
    if options.json:
        print(json.dumps({"families": families, "by_transformers": BY_TRANSFORMERS}, indent=2))
    else:
        print(as_markdown() if options.markdown else _as_text(families))
    return 0


def as_markdown() -> str:
    """The table of docs/models.md."""
    rows = [_HEADS, ("---",) * len(_HEADS), *(_cells(_describe(family)) for family in FAMILIES)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    meanings = "\n".join(f"- {name}: {meaning}" for name, meaning in _COVERED.items())
    names = ", ".join(f"`{name}`" for name in BY_TRANSFORMERS)
    return "\n".join([*lines, "", f"Tested:\n\n{meanings}", "", f"Beside these {_OTHERS}: {names}."])


def _describe(family: Family) -> dict[str, Any]:
    tested = TESTED.get(family.architecture, ())
    # Some families share the GGUF architecture of another.
    has_gguf = bool(family.gguf) or "gguf" in tested
    files = ["safetensors", *["GGUF"] * has_gguf, *["MindSpore"] * ("ckpt" in tested)]
    return {
        "architecture": family.architecture,
        "model_type": family.model_type,
        "files": files,
        "gguf": family.gguf or None,
        "tested": list(tested),
        "tensor_parallel": "ranks" in tested,
    }


def _cells(family: dict[str, Any]) -> tuple[str, ...]:
    tested = ", ".join(name for name in family["tested"] if name != "ranks") or "no"
    ranks = "yes" if family["tensor_parallel"] else "no"
    return family["architecture"], family["model_type"], ", ".join(family["files"]), tested, ranks


def _as_text(families: list[dict[str, Any]]) -> str:
    rows = [_HEADS, *map(_cells, families)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", *(f"{name:<{max(map(len, _COVERED))}}  {meaning}" for name, meaning in _COVERED.items())]
    return "\n".join([*lines, "", f"{_OTHERS}:", "  " + ", ".join(BY_TRANSFORMERS)])
