"""A byte-level BPE tokenizer with a chat template, trained on the spot."""

from collections.abc import Sequence
from functools import lru_cache

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from chairlift.text.tokenizer import Tokenizer

BOS, EOS = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{% if shout is defined %}{{ shout }}{% endif %}"
)
_TEXTS = ["The quick brown fox jumps over the lazy dog.", "Hello world, hello there. Paris is the capital of France."]


def trained_on(texts: Sequence[str], vocab_size: int) -> tokenizers.Tokenizer:
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[BOS, EOS], initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(list(texts) * 4, trainer)
    return core


@lru_cache(maxsize=1)
def trained() -> tokenizers.Tokenizer:
    return trained_on(_TEXTS, 330)


@lru_cache(maxsize=1)
def small_tokenizer() -> Tokenizer:
    core = trained()
    return Tokenizer(
        core, bos_id=core.token_to_id(BOS), eos_id=core.token_to_id(EOS), add_bos=False, chat_template=TEMPLATE
    )


def tokenizer_of(chat_template: str | None, special: Sequence[str] = ()) -> Tokenizer:
    """The same with another chat template, and more special tokens."""
    core = tokenizers.Tokenizer.from_str(trained().to_str())
    core.add_special_tokens(list(special))
    return Tokenizer(
        core, bos_id=core.token_to_id(BOS), eos_id=core.token_to_id(EOS), add_bos=False, chat_template=chat_template
    )
