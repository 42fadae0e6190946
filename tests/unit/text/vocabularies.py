"""Small vocabularies the tests build themselves."""

import struct
from collections.abc import Sequence
from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

from chairlift.text.sentencepiece_model import BYTE, CONTROL, NORMAL, UNKNOWN
from fakes.protobuf import bytes_field, number_field, varint

LINES = [
    "The quick brown fox jumps over the lazy dog.",
    "Pack my box with five dozen liquor jugs, 1234 times.",
    "Größe, naïve café, 日本語のテキスト, 😀 and 👨‍👩‍👧.",
    "def f(x):\n    return x + 1\n",
]
SPACE = "\u2581"


@cache
def byte_level_json() -> str:
    """A trained byte-level BPE tokenizer, as its tokenizer.json; <|a|> and <|b|> are special, <tool> is not."""
    core = Tokenizer(BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.train_from_iterator(
        LINES,
        trainers.BpeTrainer(
            vocab_size=400,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|a|>", "<|b|>"],
        ),
    )
    core.add_tokens([AddedToken("<tool>", normalized=False)])
    return core.to_str()


def byte_level() -> Tokenizer:
    return Tokenizer.from_str(byte_level_json())


def piece_list() -> tuple[list[str], list[float], list[int]]:
    """A SentencePiece BPE vocabulary: pieces, scores, types."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    words = [f"{SPACE}t", "he", f"{SPACE}the", "in", "ing", f"{SPACE}a", "an", "lo", "hel", "hello", f"{SPACE}{SPACE}"]
    letters = [SPACE, *"abcdefghijklmnopqrstuvwxyz", "日", "é"]
    pieces += words + letters
    types += [NORMAL] * (len(words) + len(letters))
    scores = [0.0] * 259 + [float(-rank) for rank in range(len(words) + len(letters))]
    return pieces, scores, types


def model_file(
    pieces: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    trainer: bytes = number_field(3, 2),
    normalizer: bytes = number_field(4, 0),
) -> bytes:
    """A SentencePiece .model file, written field by field."""
    out = bytearray()
    for piece, score, kind in zip(pieces, scores, types, strict=True):
        score_field = varint(2 << 3 | 5) + struct.pack("<f", score)
        out += bytes_field(1, bytes_field(1, piece.encode()) + score_field + number_field(3, kind))
    return bytes(out) + bytes_field(2, trainer) + bytes_field(3, normalizer)
